"""API keys: their file, who a token belongs to, and what each key may use.

Nothing here knows HTTP; `millstream.server.access` asks, `millstream keys` writes the file.
"""
