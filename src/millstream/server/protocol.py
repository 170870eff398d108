"""uvicorn's HTTP/1.1 protocol with bounds on clients that are slow on purpose, and JSON for its plain text."""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.ir.errors import ApiError, invalid, overloaded
from millstream.server.answer_headers import guarded_headers
from millstream.server.chunks import Outbox, with_chunk_writer
from millstream.server.dialect import surface_of
from millstream.server.head import MAX_HEADER_BYTES, head_too_large
from millstream.server.settings import Settings
from millstream.surfaces import openai_common
from millstream.surfaces.sse import error_headers
from millstream.surfaces.wire import Surface

_UNSENT_BYTES = 16 * 1024

_OTHER_FILES = 100
"""File descriptors that are not connections: the engine's socket, the store, models being looked at."""


def protocol_class(settings: Settings) -> type[H11Protocol]:
    """The class for ``uvicorn.Config(http=…)``, which takes no arguments of ours."""

    class Protocol(BoundedProtocol):
        header_seconds = settings.header_seconds
        stall_seconds = settings.stall_seconds
        max_connections = allowed_connections(settings.max_connections)
        outbox = Outbox()

    return Protocol


def allowed_connections(wanted: int) -> int:
    """As many of them as this process has file descriptors for, with some left for what else it opens."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return wanted
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _OTHER_FILES))


class BoundedProtocol(H11Protocol):
    """Closes a connection whose headers do not come within ``header_seconds``, or that reads nothing for
    ``stall_seconds`` while its buffer is full. Of more than ``max_connections``, the one that has been idle longest is
    closed; if none is idle, the new one is refused."""

    header_seconds = 30.0
    stall_seconds = 300.0
    max_connections = 1000
    _idle_since = 0.0
    outbox: Outbox
    _header_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app = with_chunk_writer(self, self.app, self.outbox)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        if len(self.connections) > self.max_connections and not self._take_idle_place():
            self._refuse(overloaded("The server has no room for another connection.", retry_after=1))
            return
        _keep_unsent_small(transport)
        self._watch_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_headers()

    def pause_writing(self) -> None:
        super().pause_writing()
        # Not `close`, which would wait for the client to read the rest.
        self._stall_timer = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("_stall_timer")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop("_header_timer")
        self._stop("_stall_timer")

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # the rest of a body that nobody reads has no more time than headers
            self._watch_headers()

    def send_400_response(self, msg: str) -> None:
        kept, _ = self.conn.trailing_data
        if len(kept) > MAX_HEADER_BYTES:
            self._refuse(head_too_large(), surface_of({"path": _path_of(kept), "headers": ()}))
        else:
            self._refuse(invalid(msg))

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _take_idle_place(self) -> bool:
        """Close the connection that has been idle longest; whether there is one."""
        idle = [
            each for each in self.connections if each is not self and isinstance(each, BoundedProtocol) and each.idle
        ]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: each._idle_since)
        oldest.transport.abort()
        self.connections.discard(oldest)
        return True

    def _refuse(self, error: ApiError, surface: Surface | None = None) -> None:
        """Answer without the app, and close. ``surface`` None: nobody knows what the client speaks."""
        body = openai_common.encode_error(error) if surface is None else surface.encode_error(error)
        head = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}", f"content-length: {len(body)}"]
        head += [f"{name.decode()}: {value.decode()}" for name, value in guarded_headers(error_headers(error))]
        self.transport.write("\r\n".join([*head, "connection: close", "", ""]).encode() + body)
        self.transport.close()

    def _watch_headers(self) -> None:
        if not self.idle or self.transport.is_closing():
            self._stop("_header_timer")
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop(self, name: Literal["_header_timer", "_stall_timer"]) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def _path_of(head: bytes) -> str:
    """The path in the first line of a head that was not read to its end; empty if there is none."""
    _, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    return rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")


def _keep_unsent_small(transport: asyncio.Transport) -> None:
    """Let the kernel take no more than it can soon send: a client that stops reading is then felt after some hundred
    tokens, not after megabytes of them. What is on its way is not bounded by this, so speed is not either."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
