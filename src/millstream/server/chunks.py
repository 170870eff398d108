"""The short way for the pieces of streamed answers: past h11 and the layers around the app, written in bursts.

h11 and those layers spend more on a chunk than it costs otherwise. Within a chunked body h11's state does not change,
so its chunks may go past it; h11 sees the head and the end. They are written after all streams that are ready had their
turn: the system's code for a write and ours for a token would drive each other out of the processor's caches if they
alternated, and the pieces of one connection become one write.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.surfaces.sse import DIRECT_WRITE


class Outbox:
    """Connections that have something to write at the end of this turn of the event loop."""

    def __init__(self) -> None:
        self._waiting: list[ChunkWriter] = []

    def add(self, writer: ChunkWriter) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(writer)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for writer in waiting:
            writer.flush()


class ChunkWriter:
    """Writes chunks of the answer that a connection gives at the moment. ``open``: its head told of chunks."""

    def __init__(self, protocol: H11Protocol, outbox: Outbox) -> None:
        self._cycle = protocol.cycle
        self._flow = protocol.flow
        self._transport = protocol.transport
        self._outbox = outbox
        self._pieces: list[bytes] = []
        self.open = False

    def write(self, body: bytes) -> bool:
        """Take a piece of the body; False if that is impossible: it must wait, or nobody reads any more."""
        cycle = self._cycle
        if not self.open or self._flow.write_paused or cycle.disconnected or cycle.response_complete:
            return False
        if body:
            if not self._pieces:
                self._outbox.add(self)
            self._pieces.append(body)
        return True

    def flush(self) -> None:
        """Send what was taken."""
        pieces = self._pieces
        if not pieces:
            return
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if not self._cycle.disconnected:
            self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))


def with_chunk_writer(protocol: H11Protocol, app: Any, outbox: Outbox) -> Any:
    """The app, to which the writer is offered as the extension `DIRECT_WRITE`."""
    inner = cast(ASGIApp, app)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "HEAD" or scope["http_version"] != "1.1":
            await inner(scope, receive, send)
            return
        writer = ChunkWriter(protocol, outbox)

        async def in_order(message: Message) -> None:
            writer.flush()
            await send(message)
            if message["type"] == "http.response.start":
                writer.open = message["status"] >= 200 and message["status"] not in (204, 304) and _unsized(message)

        extensions = {**(scope.get("extensions") or {}), DIRECT_WRITE: writer.write}
        await inner({**scope, "extensions": extensions}, receive, in_order)

    return serve


def _unsized(start: Message) -> bool:
    """Whether h11 will cut this answer into chunks."""
    sized = (b"content-length", b"transfer-encoding")
    return not any(name.lower() in sized for name, _ in start.get("headers", ()))
