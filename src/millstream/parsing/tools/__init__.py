"""Tool-call formats, one module each."""
