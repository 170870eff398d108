"""What the operator decides about the HTTP server."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millstream.server.store import StoreLimits
from millstream.surfaces.sse import KEEP_ALIVE_SECONDS
from millstream.surfaces.wire import Limits


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds.

    ``max_body_bytes``: of one request. ``max_reading_bytes``: of all bodies that are still coming or not decoded yet.
    ``max_connections``: as many as may be open; above them, the one that has been idle longest is closed for a new one.
    ``keep_alive_seconds``: a frame goes out this often while nothing is generated. ``stall_seconds``: a client that
    reads nothing of what waits for it for this long is dropped. ``header_seconds``, ``body_seconds``: a request's
    headers and its body must be there after this time. ``idle_seconds``: an unused connection is closed.
    ``health_seconds``: the engine must answer within. ``stuck_seconds``: an engine that has work and made no step for
    this long is not ready. ``drain_seconds``: open answers may finish within after a stop signal.
    ``request_seconds``: ``timeout`` of requests that name none; None: they have none. ``allow_origins``:
    origins whose web pages may call the server (``*``: any). ``allow_hosts``: names
    besides those of loopback under which the server may be addressed; None: any. ``access_log``: one line per request.
    ``keys_path``: file of the API keys; it need not be there. ``api_key``: digest of a key besides those of the file
    (`millstream.keys.key.digest_of`); None: there is none.
    ``store_path``: file of the stored answers; None keeps them in memory. ``store``: its bounds.
    """

    max_body_bytes: int = 32 * 1024 * 1024
    max_reading_bytes: int = 256 * 1024 * 1024
    max_connections: int = 1000
    body_seconds: float = 60.0
    header_seconds: float = 30.0
    idle_seconds: int = 75
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS
    stall_seconds: float = 300.0
    health_seconds: float = 5.0
    stuck_seconds: float = 60.0
    drain_seconds: float = 30.0
    request_seconds: float | None = None
    allow_origins: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] | None = None
    access_log: bool = False
    limits: Limits = Limits()
    keys_path: Path | None = None
    api_key: str | None = None
    store_path: Path | None = None
    store: StoreLimits = StoreLimits()
