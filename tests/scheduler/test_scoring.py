"""Log probabilities of prompts: each told once, in order, the same under every schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.core import EngineCore
from millstream.engine.protocol import SamplingParams, TokenAlternatives, TokenDelta, TokenRequest
from millstream.scheduler.scheduler import Scheduler, SchedulerConfig
from support.scripted_runner import ScriptedRunner, expected_output, expected_scores

BLOCK = 4


def core(kv_blocks: int = 64, **options: int) -> EngineCore:
    return EngineCore(
        Scheduler(SchedulerConfig(kv_blocks=kv_blocks, block_size=BLOCK, **options)), ScriptedRunner(BLOCK)
    )


def scored(name: str, prompt: list[int], max_tokens: int = 0, *, count: int | None = 2, done: int = 0) -> TokenRequest:
    return TokenRequest(
        id=name, prompt=prompt, sampling=SamplingParams(), max_tokens=max_tokens, prompt_logprobs=count, scored=done
    )


def drain(engine: EngineCore) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {}
    for _ in range(10_000):
        if not engine.has_work:
            return deltas
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
    raise AssertionError("the scheduler does not come to an end")


def scores_of(deltas: list[TokenDelta]) -> list[TokenAlternatives]:
    return [score for delta in deltas for score in delta.prompt_logprobs]


PROMPT = st.lists(st.integers(0, 3), min_size=1, max_size=30)
WORK = st.tuples(PROMPT, st.integers(0, 6), st.sampled_from([None, 0, 3]))


@given(st.lists(WORK, min_size=1, max_size=8), st.data())
def test_every_schedule_tells_the_same(work: list[tuple[list[int], int, int | None]], data: st.DataObject) -> None:
    """Mixed with generation, in small steps, with too few blocks for all and with shared prefixes."""
    engine = core(
        data.draw(st.integers(10, 20)),
        step_tokens=data.draw(st.integers(1, 12)),
        max_sequences=data.draw(st.integers(1, 5)),
    )
    requests = [
        scored(str(k), prompt, max_tokens or int(count is None), count=count)
        for k, (prompt, max_tokens, count) in enumerate(work)
    ]
    for request in requests:
        engine.add(request)
    deltas = drain(engine)
    assert engine.scheduler.stats().kv_blocks_used == 0
    for request in requests:
        told = deltas[request.id]
        assert scores_of(told) == expected_scores(request)
        tokens = [token for delta in told for token in delta.tokens]
        assert (tokens, told[-1].finish) == expected_output(request)
        generating = False
        for delta in told:
            assert not (generating and delta.prompt_logprobs), "the prompt comes before the answer"
            generating |= bool(delta.tokens)


@given(PROMPT, st.integers(0, 4), st.data())
def test_a_later_run_tells_the_rest(prompt: list[int], max_tokens: int, data: st.DataObject) -> None:
    whole = expected_scores(scored("a", prompt))
    done = data.draw(st.integers(0, len(whole)))
    engine = core(step_tokens=data.draw(st.integers(1, 12)))
    engine.add(scored("first", prompt, 1))
    drain(engine)
    engine.add(scored("a", prompt, max_tokens, done=done))
    deltas = drain(engine)["a"]
    assert scores_of(deltas) == whole[done:]
    assert deltas[-1].cached_tokens <= done


def test_the_cache_gives_nothing_to_what_is_scored_and_takes_all_of_it() -> None:
    engine = core()
    prompt = list(range(12))
    for name in ("a", "b"):
        engine.add(scored(name, prompt))
        (delta,) = drain(engine)[name]
        assert (delta.cached_tokens, delta.finish, len(delta.prompt_logprobs)) == (0, "length", 11)
    engine.add(scored("c", [*prompt, 50], 1, count=None))
    assert drain(engine)["c"][-1].cached_tokens == 12


def test_what_was_told_is_not_told_again_after_preemption() -> None:
    engine = core(7, step_tokens=2)
    engine.add(scored("old", [1], 24, count=None))
    engine.step()
    request = scored("new", list(range(20)), 3)
    engine.add(request)
    told = drain(engine)["new"]
    assert engine.stats().preemptions > 0
    assert scores_of(told) == expected_scores(request)


def test_a_prompt_of_one_token_has_nothing_to_tell() -> None:
    engine = core()
    engine.add(scored("a", [7]))
    (delta,) = drain(engine)["a"]
    assert (delta.finish, delta.prompt_logprobs, delta.tokens) == ("length", [], [])


def test_nothing_to_run_is_still_refused() -> None:
    with pytest.raises(ValueError, match="one token to generate"):
        core().scheduler.add(scored("a", [1, 2], 0, count=None))
