"""One loaded model and the requests that it is answering."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.engine.protocol import EngineInfo, EngineStats
from millstream.hosting.opening import HostedEngine, ModelProvider, ModelSource, OpenModel
from millstream.ir.deltas import Delta
from millstream.ir.provider import DeltaStream
from millstream.ir.request import Request


class Served:
    """Counts what is open, so that the model can be ended when nothing is."""

    def __init__(self, source: ModelSource, opened: OpenModel) -> None:
        self.source = source
        self.engine: HostedEngine = opened.engine
        self.provider: ModelProvider = opened.provider
        self.leaving = False
        """Whether it takes no new requests, as it is being unloaded."""
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def model(self) -> str:
        return self.source.name

    @property
    def info(self) -> EngineInfo:
        return self.engine.info

    @property
    def pid(self) -> int:
        return self.engine.pid

    @property
    def open_requests(self) -> int:
        """Requests that are being taken or answered."""
        return self._open

    async def stats(self) -> EngineStats:
        """A round trip to the engine. Raises `ApiError` (503) if it does not answer."""
        return await self.engine.stats()

    async def stream(self, request: Request) -> DeltaStream:
        """See `millstream.ir.provider.Provider`; the request is open until its stream is closed."""
        self._enter()
        try:
            return _Counted(await self.provider.stream(request), self._leave)
        except BaseException:
            self._leave()
            raise

    @contextmanager
    def busy(self) -> Iterator[ModelProvider]:
        """The provider, for one answer that is no stream."""
        self._enter()
        try:
            yield self.provider
        finally:
            self._leave()

    async def idle(self, seconds: float) -> bool:
        """Wait until nothing is open, at most this long; whether that came true."""
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _enter(self) -> None:
        self._open += 1
        self._idle.clear()

    def _leave(self) -> None:
        self._open -= 1
        if not self._open:
            self._idle.set()


class _Counted:
    """A stream that says when it is closed, which whoever reads a stream does in the end. It adds no coroutine to what
    happens once per token."""

    def __init__(self, stream: DeltaStream, closed: Callable[[], None]) -> None:
        self._stream = stream
        self._closed: Callable[[], None] | None = closed

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Delta]:
        return self._stream.__anext__()

    async def aclose(self) -> None:
        closed, self._closed = self._closed, None
        try:
            await self._stream.aclose()
        finally:
            if closed is not None:
                closed()
