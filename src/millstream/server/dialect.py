"""Which envelope a path's failures have, also before a route is found or its handler runs."""

from __future__ import annotations

from starlette.types import Scope

from millstream.surfaces import anthropic_messages
from millstream.surfaces.wire import Surface


def surface_of(scope: Scope) -> Surface | None:
    """Anthropic's surface for its own paths, and for the shared ones if the client says that it speaks it; None for
    OpenAI's envelope."""
    path = scope["path"]
    if _under(path, "/v1/messages") or (_under(path, "/v1/models") and speaks_anthropic(scope)):
        return anthropic_messages
    return None


def speaks_anthropic(scope: Scope) -> bool:
    """Whether the client sent an ``anthropic-version`` (any)."""
    return any(name == b"anthropic-version" for name, _ in scope["headers"])


def _under(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
