"""`millstream top`: a terminal interface to a running server.

It knows a server by its HTTP API alone (`millstream.admin.views` and `/v1/chat/completions`), so it runs on another
machine as well.
"""
