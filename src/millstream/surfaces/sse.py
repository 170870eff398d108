"""Server-sent events: an ASGI response that writes a delta stream in one wire format.

It needs no engine and no server: ``sse_response(stream, surface=openai_chat)`` answers with any stream of deltas.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from millstream.ir.deltas import Delta, Error, Start
from millstream.ir.errors import ApiError
from millstream.ir.guard import failure, problem_of
from millstream.ir.provider import DeltaStream
from millstream.surfaces.wire import StreamEncoder, Surface, WireOptions

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

DirectWrite = Callable[[bytes], bool]
DIRECT_WRITE = "millstream.write"
"""ASGI extension (a `DirectWrite`): writes a piece of the body that is not the last without a coroutine; False if it
cannot be written at once, and then ``send`` is the way."""

KEEP_ALIVE_SECONDS = 10.0

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_TURNS = 32
"""Deltas after which others have their turn, for a source that never waits and a client that takes everything."""

_STOPPING = Error("The server is shutting down.", code="shutting_down", status=503, retry_after=5)


def comment(text: str) -> bytes:
    """A frame that clients skip."""
    return b": " + text.encode() + b"\n\n"


def sse_response(
    stream: DeltaStream,
    *,
    surface: Surface,
    options: WireOptions | None = None,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
) -> SseResponse:
    """The ASGI response of a guarded stream.

    ``keep_alive_seconds``: while the source is silent, a frame goes out this often by wall clock. A client that
    does not read pauses the source.
    """
    return SseResponse(stream, surface, options or WireOptions(stream=True), keep_alive_seconds)


def error_headers(error: ApiError) -> list[tuple[bytes, bytes]]:
    """Headers of a JSON failure: how to authenticate if that is what is wrong, ``retry-after`` in whole seconds if the
    error has one."""
    headers = [(b"content-type", b"application/json")]
    if error.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="millstream"'))
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
    return headers


class SseResponse:
    """Waits for the first delta before it answers 200, so that a failure that comes first has its own status.

    When the client leaves, the stream is closed at once. When the server stops (the task is cancelled), the client is
    told in-band.
    """

    def __init__(self, stream: DeltaStream, surface: Surface, options: WireOptions, keep_alive_seconds: float) -> None:
        self._stream = stream
        self._surface = surface
        self._options = options
        self._keep_alive_seconds = keep_alive_seconds
        self._stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        direct = (scope.get("extensions") or {}).get(DIRECT_WRITE)
        writer = asyncio.ensure_future(self._write(_Outlet(send, direct)))
        leaving = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait((writer, leaving), return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and not writer.cancelled():
                writer.result()
        except asyncio.CancelledError:
            self._stopping = True
            writer.cancel()
            await asyncio.wait((writer,), timeout=1)
            raise
        finally:
            leaving.cancel()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            await self._stream.aclose()

    async def _write(self, outlet: _Outlet) -> None:
        first = asyncio.ensure_future(self._first())
        try:
            problem = await self._early_error(first)
            if problem is None:
                await self._events(outlet, first)
            else:
                await self._refuse(outlet, problem)
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    async def _early_error(self, first: asyncio.Future[list[Delta]]) -> Error | None:
        """The failure that ends the stream before anything was said."""
        try:
            await asyncio.wait((first,), timeout=self._keep_alive_seconds)
        except asyncio.CancelledError:
            if self._stopping:
                return _STOPPING
            raise
        last = first.result()[-1:] if first.done() else []
        return last[0] if last and isinstance(last[0], Error) else None

    async def _first(self) -> list[Delta]:
        """Deltas up to the first that tells something about the answer (`Start` does not)."""
        deltas: list[Delta] = []
        try:
            async for delta in self._stream:
                deltas.append(delta)
                if not isinstance(delta, Start):
                    break
        except Exception as exception:
            # A guarded stream never raises; this one was not guarded.
            deltas.append(failure(exception))
        return deltas

    async def _refuse(self, outlet: _Outlet, error: Error) -> None:
        problem = problem_of(error)
        await outlet.open(error.status, error_headers(problem))
        await outlet.write(self._surface.encode_error(problem), more=False)

    async def _events(self, outlet: _Outlet, first: asyncio.Future[list[Delta]]) -> None:
        encoder = self._surface.stream_encoder(self._options)
        await outlet.open(200, list(_HEADERS))
        pulse = asyncio.ensure_future(self._pulse(outlet, encoder))
        try:
            await outlet.write(encoder.start())
            for delta in await first:
                await outlet.write(encoder.encode(delta))
            turn = 0
            encode, put = encoder.encode, outlet.put
            async for delta in self._stream:
                frames = encode(delta)
                if frames and not put(frames):
                    await outlet.write(frames)
                turn += 1
                if turn % _TURNS == 0:
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            await outlet.write(encoder.encode(_STOPPING))
        except Exception as exception:
            await outlet.write(encoder.encode(failure(exception)))
        finally:
            pulse.cancel()
        await outlet.write(encoder.end(), more=False)

    async def _pulse(self, outlet: _Outlet, encoder: StreamEncoder) -> None:
        """Fill silence. A frame that waits for a slow client is no second one: the next is due after it went out."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(max(0.0, outlet.last_frame + self._keep_alive_seconds - clock()))
            now = clock()
            if now - outlet.last_frame >= self._keep_alive_seconds:
                await outlet.write(encoder.ping(now - outlet.last_data), data=False)


class _Outlet:
    """One response, and when something of its body was last written (seconds of the loop's clock)."""

    def __init__(self, send: Send, direct: DirectWrite | None) -> None:
        self._send = send
        self._direct = direct
        self._clock = asyncio.get_running_loop().time
        self.last_frame = self.last_data = self._clock()

    async def open(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head."""
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def put(self, frames: bytes) -> bool:
        """Write frames with data, if that is possible without waiting."""
        if self._direct is None or not self._direct(frames):
            return False
        self.last_frame = self.last_data = self._clock()
        return True

    async def write(self, frames: bytes, *, more: bool = True, data: bool = True) -> None:
        if not more or self._direct is None or not self._direct(frames):
            await self._send({"type": "http.response.body", "body": frames, "more_body": more})
        self.last_frame = self._clock()
        if data or frames.startswith(b"data:"):
            self.last_data = self.last_frame


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
