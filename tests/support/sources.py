"""A source of deltas that does as it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from millstream.ir.deltas import Delta
from millstream.ir.provider import DeltaStream


class Source:
    """Plays deltas and exceptions, counts how often it is closed."""

    def __init__(self, items: Iterable[Delta | BaseException]) -> None:
        self.items = iter(items)
        self.closed = 0

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        for item in self.items:
            if isinstance(item, BaseException):
                raise item
            return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed += 1


async def read(stream: DeltaStream) -> list[Delta]:
    return [delta async for delta in stream]
