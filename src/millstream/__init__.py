"""Millstream: an LLM inference server with a native CPU engine."""

from __future__ import annotations

__version__: str


def __getattr__(name: str) -> str:
    """``__version__``, looked up once somebody asks: to read the package's metadata takes longer than to start Python,
    and every command and every engine process imports this package."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    globals()[name] = found = version(__name__)
    return found
