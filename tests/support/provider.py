"""A provider that plays scripts: what the server's tests put in the place of a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from millstream.admin.views import ModelView
from millstream.engine.protocol import EngineStats
from millstream.ir.deltas import Content, Delta, Finish, Start, Usage
from millstream.ir.errors import ApiError, model_not_found
from millstream.ir.guard import guard
from millstream.ir.provider import DeltaStream, ModelCard
from millstream.ir.request import Request

Step = Delta | float | Exception
"""A delta to send, seconds to be silent, or what to raise."""

CARD = ModelCard(id="tiny", created=1_700_000_000, context_length=2048)


def hello(request: Request) -> list[Step]:
    """A small answer for every choice."""
    steps: list[Step] = [Start(prompt_tokens=5, cached_tokens=2)]
    for choice in range(request.n):
        steps += [Content("Hel", choice), Content(f"lo {choice}", choice)]
    steps += [Finish("stop", Usage(5, 3, 2, 0), choice) for choice in range(request.n)]
    return steps


class ScriptedProvider:
    """Plays ``script(request)`` for each request and remembers what happened."""

    def __init__(self, script: Callable[[Request], Iterable[Step]] = hello, *, card: ModelCard = CARD) -> None:
        self.script = script
        self.card = card
        self.requests: list[Request] = []
        self.closed = 0
        self.refuse: ApiError | None = None

    def models(self) -> list[ModelCard]:
        return [self.card]

    async def stream(self, request: Request) -> DeltaStream:
        self.requests.append(request)
        if request.model != self.card.id:
            raise model_not_found(request.model, [self.card.id])
        if self.refuse is not None:
            raise self.refuse
        return guard(self._play(request), choices=request.n)

    async def _play(self, request: Request) -> AsyncIterator[Delta]:
        try:
            for step in self.script(request):
                if isinstance(step, float):
                    await asyncio.sleep(step)
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield step
        finally:
            self.closed += 1


class ScriptedEngine:
    """An engine's ``stats``, to be set to numbers, an exception or silence."""

    def __init__(self) -> None:
        self.answer: Any = EngineStats(
            running=1,
            waiting=2,
            kv_blocks_used=3,
            kv_blocks_total=8,
            steps=4,
            waits={"kv_cache": 2},
            draft_tokens=9,
            accepted_tokens=7,
            forced_tokens=5,
            grammars_compiled=2,
            grammars_reused=3,
            grammar_bytes=4096,
        )

    async def stats(self) -> EngineStats:
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, float):
            await asyncio.sleep(self.answer)
            return EngineStats()
        assert isinstance(self.answer, EngineStats)
        return self.answer


class NoDesk:
    """An operator's desk with nothing on it."""

    def views(self) -> list[ModelView]:
        return []

    async def load(self, name: str) -> ModelView:
        raise model_not_found(name, [])

    unload = pull = cancel_pull = load
