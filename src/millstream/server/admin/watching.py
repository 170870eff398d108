"""The response of whoever looks on: events without an end, for a client that may leave, be slow, or stay on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from millstream.server.lifecycle import Lifecycle
from millstream.surfaces.sse import comment, disconnected

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_KEEP_ALIVE = comment("keep-alive")
_END = {"type": "http.response.body", "body": b"", "more_body": False}
_STOP_SECONDS = 1.0


class WatchResponse:
    """Sends ``events`` as they come. The next is asked for when the last was taken, so a slow client makes the source
    wait and gets what is new then. ``keep_alive_seconds``: silence after which a comment goes out. It is no open
    request and delays no shutdown."""

    def __init__(self, events: AsyncGenerator[bytes], lifecycle: Lifecycle, keep_alive_seconds: float) -> None:
        self._events = events
        self._lifecycle = lifecycle
        self._keep_alive_seconds = keep_alive_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._lifecycle.watching():
            writer = asyncio.ensure_future(self._write(send))
            leaving = asyncio.ensure_future(disconnected(receive))
            stopping = False
            try:
                await asyncio.wait((writer, leaving), return_when=asyncio.FIRST_COMPLETED)
                if writer.done():
                    writer.result()
            except asyncio.CancelledError:
                stopping = True
            finally:
                for task in (leaving, writer):
                    task.cancel()
                await asyncio.gather(leaving, writer, return_exceptions=True)
            if stopping:
                with suppress(TimeoutError):
                    await asyncio.wait_for(send(_END), _STOP_SECONDS)

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        coming: asyncio.Future[bytes] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(self._next())
                await asyncio.wait((coming,), timeout=self._keep_alive_seconds)
                frame = _KEEP_ALIVE
                if coming.done():
                    frame, coming = coming.result(), None
                    if not frame:
                        break
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send(_END)
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            await self._events.aclose()

    async def _next(self) -> bytes:
        """The next event; empty at the end."""
        return await anext(self._events, b"")
