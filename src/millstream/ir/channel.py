"""A bounded channel from a producer to the stream its reader sees, and the merge of several streams into one.

Both live on one event loop; neither ever buffers more than its capacity.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from types import TracebackType

from millstream.ir.deltas import Delta
from millstream.ir.guard import failure, guard
from millstream.ir.provider import DeltaStream


class ChannelClosed(Exception):
    """The reader has gone, or the sender was closed: nothing can be sent any more."""


class Sender:
    """The producer's end. Several tasks may send; as a context manager it is closed at exit."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    @property
    def closed(self) -> bool:
        """Nothing can be sent any more."""
        return self._pipe.closed

    async def send(self, delta: Delta) -> None:
        """Send a delta, waiting while the channel is full. Raises `ChannelClosed` if the reader goes away."""
        await self._pipe.put(delta)

    def try_send(self, delta: Delta) -> bool:
        """Send a delta if there is room; False if the channel is full. Raises `ChannelClosed`."""
        return self._pipe.try_put(delta)

    def close(self) -> None:
        """No more deltas. What was sent is still read; if a choice is open then, the stream ends with an `Error`."""
        self._pipe.close()

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def channel(capacity: int, *, choices: int = 1) -> tuple[Sender, DeltaStream]:
    """A sender and the guarded stream it feeds. Closing the stream tells the sender by `ChannelClosed`."""
    pipe = _Pipe(capacity)
    return Sender(pipe), guard(pipe, choices=choices)


def merge(sources: Sequence[DeltaStream], *, capacity: int = 64, choices: int | None = None) -> DeltaStream:
    """One guarded stream out of several that tell different choices: ``choices`` in all, or (None) one each. Needs a
    running event loop.

    Each source is read by a task of its own; all pause while the reader lags ``capacity`` deltas behind. Of several
    `Start` the guard keeps the first of each prompt. The first `Error` ends the stream and closes the other sources.
    """
    return guard(_Merged(sources, capacity), choices=choices or len(sources))


class _Pipe:
    """Deltas between one reader and its senders. `aclose` is the reader's end, `close` the senders'."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("a channel holds at least one delta")
        self.closed = False
        self._capacity = capacity
        self._items: deque[Delta] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._senders: deque[asyncio.Future[None]] = deque()

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        while not self._items:
            if self.closed:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        delta = self._items.popleft()
        self._wake_sender()
        return delta

    async def aclose(self) -> None:
        self._items.clear()
        self.close()

    def close(self) -> None:
        self.closed = True
        self._wake_reader()
        while self._senders:
            self._wake_sender()

    def try_put(self, delta: Delta) -> bool:
        if self.closed:
            raise ChannelClosed
        if len(self._items) >= self._capacity:
            return False
        self._items.append(delta)
        self._wake_reader()
        return True

    async def put(self, delta: Delta) -> None:
        while not self.try_put(delta):
            turn = asyncio.get_running_loop().create_future()
            self._senders.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._senders:
                    self._senders.remove(turn)
                else:  # it was this sender's turn: pass it on
                    self._wake_sender()
                raise

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_sender(self) -> None:
        while self._senders:
            turn = self._senders.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class _Merged:
    def __init__(self, sources: Sequence[DeltaStream], capacity: int) -> None:
        self._sources = sources
        self._pipe = _Pipe(capacity)
        self._open = len(sources)
        self._pumps = [asyncio.ensure_future(self._pump(source)) for source in sources]

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        return await self._pipe.__anext__()

    async def aclose(self) -> None:
        await self._pipe.aclose()
        for pump in self._pumps:
            pump.cancel()
        try:
            await asyncio.gather(*self._pumps, return_exceptions=True)
        finally:  # also if the closing task is cancelled: no source may be left running
            await asyncio.gather(*(source.aclose() for source in self._sources), return_exceptions=True)

    async def _pump(self, source: DeltaStream) -> None:
        try:
            async for delta in source:
                await self._pipe.put(delta)
        except ChannelClosed:
            return
        except Exception as exception:
            with suppress(ChannelClosed):
                await self._pipe.put(failure(exception))
            return
        self._open -= 1
        if self._open == 0:
            self._pipe.close()
