"""uvicorn's HTTP/1.1 protocol with bounds on clients that are slow on purpose, and JSON for its plain text."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Literal

from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.ir.errors import invalid
from millstream.server.chunks import Outbox, with_chunk_writer
from millstream.server.settings import Settings
from millstream.surfaces import openai_common

_UNSENT_BYTES = 16 * 1024


def protocol_class(settings: Settings) -> type[H11Protocol]:
    """The class for ``uvicorn.Config(http=…)``, which takes no arguments of ours."""

    class Protocol(BoundedProtocol):
        header_seconds = settings.header_seconds
        stall_seconds = settings.stall_seconds
        outbox = Outbox()

    return Protocol


class BoundedProtocol(H11Protocol):
    """Closes a connection whose headers do not come within ``header_seconds``, or that reads nothing for
    ``stall_seconds`` while its buffer is full."""

    header_seconds = 30.0
    stall_seconds = 300.0
    outbox: Outbox
    _header_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app = with_chunk_writer(self, self.app, self.outbox)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
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

    def send_400_response(self, msg: str) -> None:
        body = openai_common.encode_error(invalid(msg))
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()

    def _watch_headers(self) -> None:
        waiting = self.cycle is None or self.cycle.response_complete
        if not waiting or self.transport.is_closing():
            self._stop("_header_timer")
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop(self, name: Literal["_header_timer", "_stall_timer"]) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def _keep_unsent_small(transport: asyncio.Transport) -> None:
    """Let the kernel take no more than it can soon send: a client that stops reading is then felt after some hundred
    tokens, not after megabytes of them. What is on its way is not bounded by this, so speed is not either."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
