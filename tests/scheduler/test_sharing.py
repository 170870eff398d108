"""What sequences do to each other: prompts beside prompts, shared prefixes, readers that stop, classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from millstream.engine.core import EngineCore
from millstream.engine.protocol import SamplingParams, TokenDelta, TokenRequest
from millstream.scheduler.pace import LEAST_CHUNK, LEAST_UNITS, Pace, TokenCost
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Chunk, Sampled, Scheduler
from support.scripted_runner import ScriptedRunner, expected_output

BLOCK = 4


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(ScriptedRunner):
    """Each token takes ``seconds``, and as much again for every 3,000 positions that it looks back on."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__(BLOCK)
        self._clock = clock
        self._seconds = seconds

    def execute(self, chunks: list[Chunk]) -> Sampled:
        self._clock.now += self._seconds * sum(chunk.count * (1 + chunk.start / 3000) for chunk in chunks)
        self.steps.append([(c.sequence.id, c.start, c.count, c.sample) for c in chunks])
        return Sampled([1] * sum(chunk.sample for chunk in chunks), [None] * sum(chunk.sample for chunk in chunks))


def request(name: str, prompt: Iterable[int], max_tokens: int = 5, **options: Any) -> TokenRequest:
    return TokenRequest(id=name, prompt=list(prompt), sampling=SamplingParams(), max_tokens=max_tokens, **options)


def core(kv_blocks: int = 64, **options: Any) -> EngineCore:
    config = SchedulerConfig(kv_blocks=kv_blocks, block_size=BLOCK, **options)
    return EngineCore(Scheduler(config), ScriptedRunner(BLOCK))


def drain(engine: EngineCore) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {}
    while engine.has_work:
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
    return deltas


def tokens_of(deltas: list[TokenDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.tokens]


def steps_of(engine: EngineCore) -> list[list[tuple[str, int, int, bool]]]:
    assert isinstance(engine.runner, ScriptedRunner)
    return engine.runner.steps


@pytest.mark.parametrize("tenant", ["other", "same"])
@pytest.mark.parametrize("wrong", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("depth", [0, 7_000, 20_000, 29_000])
def test_a_short_prompt_beside_a_very_long_one_waits_at_most_three_times_its_idle_time(
    tenant: str, wrong: float, depth: int
) -> None:
    """Wherever the long prompt is when the short one comes, and although the cost of attention is only roughly known.
    On a slow machine, where no chunk fits into `SchedulerConfig.step_seconds`."""

    def first_token(engine: EngineCore, clock: Clock, name: str) -> float:
        arrived = clock.now
        engine.add(request(name, range(150), max_tokens=1, tenant=tenant))
        while not any(delta.id == name and delta.tokens for delta in engine.step()):
            pass
        return clock.now - arrived

    def timed() -> tuple[EngineCore, Clock]:
        clock = Clock()
        cost = TokenCost(per_position=wrong / 3000)
        config = SchedulerConfig(kv_blocks=10_000, block_size=BLOCK, token_cost=cost)
        return EngineCore(Scheduler(config), Timed(clock, 0.02), clock=clock), clock

    idle = first_token(*timed(), "short")
    engine, clock = timed()
    engine.add(request("long", range(30_000), max_tokens=1, tenant="same"))
    runner = engine.runner
    assert isinstance(runner, ScriptedRunner)
    while not runner.steps or runner.steps[-1][0][1] < depth:
        engine.step()
    step = clock.now
    engine.step()
    waited = clock.now - step  # it may have come just after this step began
    assert waited + first_token(engine, clock, "short") <= 3 * idle


def test_a_lone_long_prompt_is_computed_in_whole_tiles() -> None:
    """However dear its tokens are; and in as few steps as the bound allows while they are cheap."""
    clock = Clock()
    config = SchedulerConfig(kv_blocks=10_000, block_size=BLOCK, token_cost=TokenCost(per_position=1 / 3000))
    engine = EngineCore(Scheduler(config), Timed(clock, 0.001), clock=clock)
    engine.add(request("long", range(30_000), max_tokens=1))
    drain(engine)
    counts = [chunk[0][2] for chunk in steps_of(engine)]
    assert counts[0] == config.prompt_units
    assert min(counts[:-1]) == LEAST_CHUNK


def test_the_budget_follows_what_steps_take() -> None:
    pace = Pace(0.1, 256)
    pace.ran(256, 0.4)
    assert pace.units == 64
    pace.ran(64, 0.05)
    assert pace.units == 128
    pace.ran(3, 0.05)  # decodes say nothing about prompts
    assert pace.units == 128
    pace.ran(128, 10.0)
    assert pace.units == LEAST_UNITS
    for _ in range(9):
        pace.ran(pace.units, 0.001)
    assert pace.units == 256


def test_choices_of_one_prompt_compute_it_once() -> None:
    engine = core()
    requests = [request(f"r-{choice}", range(21), choice=choice) for choice in range(4)]
    for each in requests:
        engine.add(each)
    deltas = drain(engine)
    computed = sum(count for step in steps_of(engine) for _, start, count, _ in step if start < 20)
    assert computed == 21
    for each in requests:
        assert tokens_of(deltas[each.id]) == expected_output(each)[0]
    assert [deltas[each.id][0].cached_tokens for each in requests] == [0, 20, 20, 20]


def test_those_who_wait_for_a_prefix_say_so() -> None:
    engine = core()
    for name in "ab":
        engine.add(request(name, range(30)))
    engine.step()
    assert engine.stats().waits == {"shared_prefix": 1}


def test_the_next_one_computes_a_prefix_whose_owner_leaves() -> None:
    engine = core(step_tokens=8)
    for name in "ab":
        engine.add(request(name, range(30)))
    engine.step()
    engine.abort("a")
    assert tokens_of(drain(engine)["b"]) == expected_output(request("b", range(30)))[0]


def test_a_prefix_is_not_waited_for_from_a_lower_class() -> None:
    engine = core(step_tokens=8)
    engine.add(request("low", range(30), priority=5))
    engine.step()
    engine.add(request("high", range(30), priority=0))
    engine.step()
    assert [name for name, *_ in steps_of(engine)[1]] == ["high"]


def test_without_a_prefix_cache_nobody_waits_for_a_prefix() -> None:
    engine = core(prefix_cache=False)
    for name in "ab":
        engine.add(request(name, range(10), max_tokens=1))
    engine.step()
    assert not engine.has_work


def test_a_request_that_finds_blocks_passes_one_that_does_not_but_not_for_ever() -> None:
    clock = Clock()
    config = SchedulerConfig(kv_blocks=12, block_size=BLOCK)
    engine = EngineCore(Scheduler(config), ScriptedRunner(BLOCK), clock=clock)
    engine.add(request("runs", range(20), max_tokens=20))
    engine.step()
    engine.add(request("large", range(50, 90), max_tokens=1))
    engine.add(request("small", range(60, 64), max_tokens=1))
    assert "small" in {delta.id for delta in engine.step()}
    clock.now = 60.0
    engine.add(request("late", range(70, 74), max_tokens=1))
    engine.step()
    assert engine.stats().waits == {"kv_cache": 2}
    engine.add(request("other", range(80, 84), max_tokens=1, tenant="other"))
    assert "other" in {delta.id for delta in engine.step()}
    deltas = drain(engine)
    assert deltas["large"][-1].finish == deltas["late"][-1].finish == "length"


@pytest.mark.parametrize("sizes", [{"max_sequences": 1}, {"kv_blocks": 12}])
def test_a_better_class_takes_the_place_of_a_worse_one_and_gives_it_back(sizes: dict[str, int]) -> None:
    engine = core(**sizes)
    batch = request("batch", range(30), max_tokens=12, priority=5)
    chat = request("chat", range(50, 62), max_tokens=8)
    engine.add(batch)
    deltas = engine.step() + engine.step()
    engine.add(chat)
    deltas += engine.step() + engine.step()
    assert engine.stats().waits == {"max_sequences" if "max_sequences" in sizes else "kv_cache": 1}
    assert "chat" in {delta.id for delta in deltas}
    for each in drain(engine).values():
        deltas += each
    for each in (batch, chat):
        assert [t for d in deltas if d.id == each.id for t in d.tokens] == expected_output(each)[0]


def test_what_has_risen_by_waiting_keeps_its_place() -> None:
    clock = Clock()
    engine = EngineCore(
        Scheduler(SchedulerConfig(kv_blocks=64, block_size=BLOCK, max_sequences=1)), ScriptedRunner(BLOCK), clock=clock
    )
    engine.add(request("first", range(4), max_tokens=2))
    engine.add(request("low", range(10, 14), max_tokens=6, priority=2))
    engine.step()
    clock.now = 100.0
    engine.step()
    engine.add(request("high", range(20, 24)))
    engine.step()
    engine.step()
    assert [step[0][0] for step in steps_of(engine)] == ["first", "first", "low", "low"]


def test_a_paused_sequence_leaves_its_place_and_goes_on_where_it_was() -> None:
    engine = core(kv_blocks=12, max_sequences=1)
    a, b = request("a", range(9), max_tokens=12), request("b", range(20, 50), max_tokens=6)
    engine.add(a)
    seen = engine.step()
    engine.pause("a", "paused_reader")
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.waits, stats.kv_blocks_used) == (0, 1, {"paused_reader": 1}, 0)
    assert not engine.has_work
    engine.add(b)
    assert tokens_of(drain(engine)["b"]) == expected_output(b)[0]
    engine.resume("a", "paused_reader")
    seen += drain(engine)["a"]
    assert tokens_of(seen) == expected_output(a)[0]


def test_what_a_paused_sequence_computed_is_kept_while_nobody_needs_the_blocks() -> None:
    engine = core()
    engine.add(request("a", range(16), max_tokens=9))
    engine.step()
    engine.pause("a", "paused_reader")
    engine.resume("a", "paused_reader")
    engine.step()
    assert steps_of(engine)[1] == [("a", 16, 1, True)]


def test_pausing_while_queued_and_leaving_while_paused() -> None:
    engine = core(max_sequences=1)
    engine.add(request("a", range(3), max_tokens=3))
    engine.add(request("b", range(3)))
    engine.step()
    engine.pause("b", "paused_reader")
    engine.pause("b", "paused_reader")
    engine.pause("nobody", "paused_reader")
    engine.resume("nobody", "paused_reader")
    assert set(drain(engine)) == {"a"}
    engine.abort("b")
    assert engine.stats().waiting == 0
    engine.resume("b", "paused_reader")
    assert not engine.has_work
