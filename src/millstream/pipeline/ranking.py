"""``best_of``: draw more choices than were asked for and keep those that the model itself finds most likely."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from millstream.ir.deltas import Content, Delta, Error, Finish, Reasoning, Start
from millstream.ir.provider import DeltaStream


class BestOf:
    """The best ``n`` of the candidates of one prompt (number ``prompt``), best first. Each candidate is a stream of its
    own, with one prompt and one choice.

    Nothing is known of the order before the last candidate has ended, so all are read to their end first. The tokens
    of those that are dropped are counted in the usage of the best. ``logprobs``: whether the request asked for the log
    probabilities that ranking needs in any case. ``scored``: whether those of the prompt come before them.
    """

    def __init__(
        self, candidates: Sequence[DeltaStream], *, n: int, prompt: int, logprobs: bool, scored: bool = False
    ) -> None:
        self._candidates = candidates
        self._n = n
        self._prompt = prompt
        self._logprobs = logprobs
        self._scored = scored
        self._ready: deque[Delta] | None = None
        self._reading: asyncio.Future[list[list[Delta]]] | None = None

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        if self._ready is None:
            self._reading = asyncio.gather(*(_read(candidate) for candidate in self._candidates))
            self._ready = deque(self._rank(await self._reading))
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def aclose(self) -> None:
        self._ready = deque()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await asyncio.gather(*(candidate.aclose() for candidate in self._candidates), return_exceptions=True)

    def _rank(self, drawn: list[list[Delta]]) -> list[Delta]:
        for deltas in drawn:
            if isinstance(deltas[-1], Error):
                return [deltas[-1]]
        skip = next((each.prompt_tokens for each in drawn[0] if isinstance(each, Start)), 0) if self._scored else 0
        # The sort is stable: of equals the first drawn.
        ranked = sorted(drawn, key=lambda deltas: mean_logprob(deltas, skip=skip), reverse=True)
        dropped = sum(_completion_tokens(deltas) for deltas in ranked[self._n :])
        out: list[Delta] = [replace(delta, prompt=self._prompt) for delta in drawn[0] if isinstance(delta, Start)]
        for index, deltas in enumerate(ranked[: self._n]):
            out += self._renumber(deltas, self._prompt * self._n + index, dropped if index == 0 else 0)
        return out

    def _renumber(self, deltas: list[Delta], choice: int, extra_tokens: int) -> list[Delta]:
        out: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, Start | Error):
                continue
            if isinstance(delta, Finish):
                usage = replace(delta.usage, completion_tokens=delta.usage.completion_tokens + extra_tokens)
                delta = replace(delta, usage=usage)
            if isinstance(delta, Content | Reasoning | Finish) and not self._logprobs:
                delta = replace(delta, logprobs=())
            out.append(replace(delta, choice=choice))
        return out


def mean_logprob(deltas: Sequence[Delta], *, skip: int = 0) -> float:
    """Mean log probability of the tokens of a whole stream but the first ``skip``; minus infinity if there are none."""
    values = [
        entry.logprob for delta in deltas if isinstance(delta, Content | Reasoning | Finish) for entry in delta.logprobs
    ][skip:]
    return math.fsum(values) / len(values) if values else -math.inf


def _completion_tokens(deltas: Sequence[Delta]) -> int:
    last = deltas[-1]
    return last.usage.completion_tokens if isinstance(last, Finish) else 0


async def _read(stream: DeltaStream) -> list[Delta]:
    return [delta async for delta in stream]
