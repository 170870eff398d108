"""Nobody starves beside a client that sends small requests without pause, whatever it is that they compete for."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from millstream.engine.core import EngineCore
from millstream.engine.protocol import SamplingParams, TokenDelta, TokenRequest
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.policy import Fairness
from millstream.scheduler.scheduler import Scheduler
from support.scripted_runner import ScriptedRunner, expected_output

BLOCK = 4
STEP_SECONDS = 0.1
FAIRNESS = Fairness()


class Flood:
    """An engine whose queue always holds ``depth`` small requests of one key."""

    def __init__(self, depth: int, *, prompt: int = 2, priority: int = 0, **sizes: Any) -> None:
        self._steps = count(1)
        self._now = 0.0
        config = SchedulerConfig(**{"kv_blocks": 4096, "block_size": BLOCK, "step_seconds": 1e9, **sizes})
        self.core = EngineCore(Scheduler(config), ScriptedRunner(BLOCK), clock=lambda: self._now)
        self._depth = depth
        self._prompt = prompt
        self._priority = priority
        self._sent = count()

    def step(self) -> list[TokenDelta]:
        while self.core.stats().waiting < self._depth:
            self._small(next(self._sent))
        self._now = next(self._steps) * STEP_SECONDS
        return self.core.step()

    def _small(self, number: int) -> None:
        prompt = [number % 90, *range(self._prompt - 1)]
        self.core.add(
            TokenRequest(f"small-{number}", prompt, SamplingParams(), 2, tenant="flood", priority=self._priority)
        )

    def answer(self, request: TokenRequest) -> tuple[int, int]:
        """Steps until the first token of a request that comes when the flood has been going on, and until its end."""
        for _ in range(50):
            self.step()
        self.core.add(request)
        tokens: list[int] = []
        first = 0
        for step in range(1, 5000):
            for delta in self.step():
                if delta.id == request.id:
                    tokens += delta.tokens
                    first = first or (step if delta.tokens else 0)
                    if delta.finish is not None:
                        assert (tokens, delta.finish) == expected_output(request)
                        return first, step
        raise AssertionError(f"it starves: {self.core.stats()}")


def victim(**how: Any) -> TokenRequest:
    return TokenRequest("victim", [91, *range(299)], SamplingParams(), 40, tenant="victim", **how)


ALONE = -(-300 // SchedulerConfig(kv_blocks=1, block_size=1).prompt_units), 39 + -(-300 // 96)
"""Steps until the first and the last token on an idle engine."""


def test_what_it_takes_alone() -> None:
    assert Flood(0).answer(victim()) == ALONE


@pytest.mark.parametrize("places", [2, 8])
@pytest.mark.parametrize("prompt", [2, 90])
def test_beside_small_requests_of_its_class(places: int, prompt: int) -> None:
    """It waits for the next place, has half of the steps' prompt tokens, and its decode is never left out."""
    first, last = Flood(60, prompt=prompt, max_sequences=places).answer(victim())
    assert first <= 2 * ALONE[0] + 2
    assert last - first == ALONE[1] - ALONE[0]


@pytest.mark.parametrize("places", [2, 8])
def test_in_a_worse_class_it_rises_until_it_has_a_place_and_keeps_it(places: int) -> None:
    first, last = Flood(60, max_sequences=places).answer(victim(priority=3))
    rising = round(3 * FAIRNESS.ageing_seconds / STEP_SECONDS)
    assert rising <= first <= rising + 2 * ALONE[0] + 2
    assert last - first <= 2 * (ALONE[1] - ALONE[0])


def test_in_need_of_more_blocks_than_ever_are_free_at_once() -> None:
    first, last = Flood(60, prompt=6, kv_blocks=100, max_sequences=64).answer(victim())
    assert first <= round(FAIRNESS.patience_seconds / STEP_SECONDS) + 2 * ALONE[0] + 4
    assert last - first <= 2 * (ALONE[1] - ALONE[0])
