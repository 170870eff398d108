"""What `serve --journal` writes: every request as the engine got it and every token that came of it, on disk.

(`millstream.engine.journal` is something else: what the API process remembers of open requests.)
"""
