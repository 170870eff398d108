"""The deltas of one sequence on their way to their reader, and how far behind that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from millstream.engine.protocol import TokenDelta
from millstream.ir.errors import ApiError

UNREAD_TOKENS = 128
"""So many tokens, or log probabilities of a prompt, wait for a reader before its sequence is paused with the step that
follows; it goes on when a quarter of them is left."""


class SequenceStream:
    """A `TokenStream`: fed by `push` and `fail`, read by one consumer.

    ``paused``: set by who feeds it, if the sequence rests until ``resume`` is called with its id. ``leave`` is called
    with the id when the reader wants no more.
    """

    def __init__(self, request_id: str, *, resume: Callable[[str], None], leave: Callable[[str], None]) -> None:
        self.id = request_id
        self.paused = False
        self._resume = resume
        self._leave = leave
        self._queue: asyncio.Queue[TokenDelta | ApiError] = asyncio.Queue()
        self._unread = 0
        self._done = False

    @property
    def lags(self) -> bool:
        """Whether so much waits for the reader that its sequence should rest."""
        return self._unread >= UNREAD_TOKENS

    def push(self, delta: TokenDelta) -> None:
        self._unread += _weight(delta)
        self._queue.put_nowait(delta)

    def fail(self, error: ApiError) -> None:
        """The stream ends by raising this."""
        self._queue.put_nowait(error)

    def __aiter__(self) -> AsyncIterator[TokenDelta]:
        return self

    async def __anext__(self) -> TokenDelta:
        if self._done:
            raise StopAsyncIteration
        item = await self._queue.get()
        if isinstance(item, ApiError):
            self._done = True
            raise item
        self._unread -= _weight(item)
        if self.paused and self._unread <= UNREAD_TOKENS // 4:
            self.paused = False
            self._resume(self.id)
        self._done = item.finish is not None
        return item

    async def aclose(self) -> None:
        self._done = True
        self._leave(self.id)


def _weight(delta: TokenDelta) -> int:
    """Tokens that a delta tells something about."""
    return len(delta.tokens) + len(delta.prompt_logprobs)
