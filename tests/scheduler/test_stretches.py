"""Forced tokens are appended without being sampled: the same tokens, in fewer steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from millstream.engine.core import EngineCore
from millstream.engine.protocol import SamplingParams, TokenDelta, TokenRequest
from millstream.scheduler.outcome import LONGEST_STRETCH
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Scheduler
from support.scripted_constraint import Knows
from support.scripted_runner import ScriptedRunner, expected_output

BLOCK = 4


class Breaks(Knows):
    """Fails at a token that was forced."""

    def advance(self, token: int) -> None:
        if len(self._tokens) >= 12:
            raise RuntimeError("broken")
        super().advance(token)


def engine(**config: int) -> EngineCore:
    sizes = {"kv_blocks": 200, **config}
    return EngineCore(Scheduler(SchedulerConfig(block_size=BLOCK, **sizes)), ScriptedRunner(BLOCK))  # type: ignore[arg-type]


def ask(name: str, prompt: list[int], most: int, **how: object) -> TokenRequest:
    return TokenRequest(name, prompt, SamplingParams(), most, **how)  # type: ignore[arg-type]


def play(core: EngineCore, work: list[tuple[TokenRequest, Knows | None]]) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {request.id: [] for request, _ in work}
    for request, constraint in work:
        core.scheduler.add(request, constraint)
    while core.has_work:
        for delta in core.step():
            deltas[delta.id].append(delta)
    return deltas


def tokens_of(deltas: list[TokenDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.tokens]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 60), st.integers(0, 40), st.integers(1, 40), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    st.integers(24, 60),
    st.integers(1, 40),
    st.booleans(),
)
def test_tokens_are_those_of_plain_decoding(
    work: list[tuple[int, int, int, int, bool]], kv_blocks: int, step_tokens: int, cache: bool
) -> None:
    """With stop tokens, limits, too few blocks, small steps; some without a constraint, some without speculation."""
    core = engine(kv_blocks=kv_blocks, step_tokens=step_tokens, prefix_cache=cache)
    asked: list[tuple[TokenRequest, Knows | None]] = []
    for k, (length, most, forced, period, speculation) in enumerate(work):
        prompt = [(k + j) % 7 for j in range(length)]
        request = ask(str(k), prompt, most, stop_ids=(k + 50,), speculation=speculation)
        asked.append((request, Knows(prompt, forced, period) if forced else None))
    deltas = play(core, asked)
    for request, _ in asked:
        assert (tokens_of(deltas[request.id]), deltas[request.id][-1].finish) == expected_output(request)
    stats = core.stats()
    assert stats.kv_blocks_used == 0
    assert stats.generated_tokens == sum(len(tokens_of(each)) for each in deltas.values())
    runner = core.runner
    assert isinstance(runner, ScriptedRunner)
    assert all(sum(count for _, _, count, _ in step) <= step_tokens for step in runner.steps)


def test_a_stretch_is_one_step() -> None:
    core = engine()
    request = ask("a", [1, 2, 3, 4], 32)
    deltas = play(core, [(request, Knows(request.prompt, 7, 8))])["a"]
    assert tokens_of(deltas) == expected_output(request)[0]
    # The first is sampled behind the prompt, and brings what is forced behind it; then one in eight is sampled.
    assert [len(delta.tokens) for delta in deltas] == [3, 8, 8, 8, 5]
    assert core.stats().forced_tokens == 32 - 5
    assert not any(delta.drafted for delta in deltas)


def test_a_stretch_without_end_is_cut() -> None:
    request = ask("a", [1, 2, 3], 100)
    deltas = play(engine(), [(request, Knows(request.prompt, 1, 1))])["a"]
    assert {len(delta.tokens) for delta in deltas[:-1]} == {1 + LONGEST_STRETCH}
    assert tokens_of(deltas) == expected_output(request)[0]


def test_every_decode_advances_and_prompts_keep_half_a_step() -> None:
    core = engine(step_tokens=16, step_seconds=0)
    work: list[tuple[TokenRequest, Knows | None]] = []
    for k in range(3):
        request = ask(str(k), [k, 1, 2], 60)
        work.append((request, Knows(request.prompt, 1, 1)))
    for request, constraint in work:
        core.scheduler.add(request, constraint)
    core.step()
    core.scheduler.add(ask("long", list(range(60)), 2))
    runner = core.runner
    assert isinstance(runner, ScriptedRunner)
    runner.steps.clear()
    for _ in range(4):
        core.step()
    for step in runner.steps:
        counts = {name: count for name, _, count, _ in step}
        assert counts.keys() == {"0", "1", "2", "long"}
        assert sum(counts.values()) == 16
        assert counts["long"] >= 8


@pytest.mark.parametrize("what", ["logprobs", "bias", "speculation"])
def test_what_must_be_sampled_is_sampled(what: str) -> None:
    request = ask("a", [1, 2, 3], 10)
    if what == "logprobs":
        request = replace(request, sampling=SamplingParams(logprobs=0))
    elif what == "bias":
        request = replace(request, sampling=SamplingParams(logit_bias=dict.fromkeys(range(97), 1.0)))
    else:
        request = replace(request, speculation=False)
    core = engine()
    deltas = play(core, [(request, Knows(request.prompt, 1, 1))])["a"]
    assert tokens_of(deltas) == expected_output(request)[0]
    assert [len(delta.tokens) for delta in deltas] == [1] * 10
    assert core.stats().forced_tokens == 0


def test_a_constraint_that_fails_in_a_stretch_keeps_what_was_good() -> None:
    request = ask("a", [1, 2, 3, 4], 32)
    deltas = play(engine(), [(request, Breaks(request.prompt, 1, 1))])["a"]
    assert deltas[-1].finish == "error"
    assert tokens_of(deltas) == expected_output(request)[0][:8]
