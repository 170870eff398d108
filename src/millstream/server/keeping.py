"""How answers come into the store: at the end of their stream, before the client is told the end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from millstream.ir.deltas import Delta
from millstream.ir.provider import DeltaStream
from millstream.server.store import AnswerStore, StoredAnswer

log = logging.getLogger("millstream.server")


class Kept:
    """A stream that calls ``keep`` once, after its last delta was read and before its reader sees the end.

    ``see`` reads each delta along.
    """

    def __init__(
        self, stream: DeltaStream, keep: Callable[[], Awaitable[None]], *, see: Callable[[Delta], None] | None = None
    ) -> None:
        self._stream = stream
        self._keep = keep
        self._see = see
        self._ended = False

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        try:
            delta = await self._stream.__anext__()
        except StopAsyncIteration:
            if not self._ended:
                self._ended = True
                await self._keep()
            raise
        if self._see is not None:
            self._see(delta)
        return delta

    async def aclose(self) -> None:
        await self._stream.aclose()


async def save(store: AnswerStore, answer: StoredAnswer) -> bool:
    """Keep an answer; whether it worked. An answer is never lost to its client because it could not be kept."""
    try:
        kept = await store.save(answer)
    except Exception:
        log.exception("%s %s could not be stored", answer.kind, answer.id)
        return False
    if not kept:
        log.warning("%s %s is larger than the whole store may be and was not stored", answer.kind, answer.id)
    return kept
