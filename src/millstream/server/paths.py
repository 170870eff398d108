"""Which paths need no key, and which are the operator's: the one list of them. Every other path needs a key once there
are keys, also one that does not exist."""

from __future__ import annotations

PROBES = ("/health", "/ready")

PAGE = ("/",)
"""The web page itself: it holds no data, and asks the person for a key."""

PAGE_ASSETS = ("/assets",)
"""Folders of the page's own style and script."""

OPERATOR = ("/metrics", "/v1/events", "/v1/admin")
"""They tell of all clients' requests, or steer the server."""

_LOCAL_WITHOUT_KEYS = ("/v1/events", "/v1/admin")


def is_open(path: str) -> bool:
    """Whether anybody may ask."""
    return path in PROBES or path in PAGE or _below(path, PAGE_ASSETS)


def is_operators(path: str) -> bool:
    """Whether a key must be an admin's."""
    return _below(path, OPERATOR)


def is_glance(path: str) -> bool:
    """Whether a request only looks how the server is: it is none that is being answered."""
    return path in PROBES or path == "/metrics"


def is_local(path: str) -> bool:
    """Whether only this machine may ask while there are no keys."""
    return _below(path, _LOCAL_WITHOUT_KEYS)


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
