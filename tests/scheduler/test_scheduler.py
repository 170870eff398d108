from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.core import EngineCore
from millstream.engine.protocol import SamplingParams, TokenDelta, TokenRequest
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Chunk, QueueFull, Sampled, Scheduler
from support.scripted_runner import VOCABULARY, ScriptedRunner, expected_output

BLOCK = 4


def request(name: str, prompt: Iterable[int], max_tokens: int = 5, **options: Any) -> TokenRequest:
    return TokenRequest(id=name, prompt=list(prompt), sampling=SamplingParams(), max_tokens=max_tokens, **options)


def core(kv_blocks: int = 64, **options: Any) -> EngineCore:
    config = SchedulerConfig(kv_blocks=kv_blocks, block_size=BLOCK, **options)
    return EngineCore(Scheduler(config), ScriptedRunner(BLOCK))


def steps_of(engine: EngineCore) -> list[list[tuple[str, int, int, bool]]]:
    assert isinstance(engine.runner, ScriptedRunner)
    return engine.runner.steps


def drain(engine: EngineCore, limit: int = 10_000) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {}
    for _ in range(limit):
        if not engine.has_work:
            return deltas
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
    raise AssertionError("the scheduler does not come to an end")


def tokens_of(deltas: list[TokenDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.tokens]


def test_one_request_runs_prefill_then_decodes() -> None:
    engine = core()
    engine.add(request("a", range(10), max_tokens=3))
    deltas = drain(engine)["a"]
    assert steps_of(engine) == [[("a", 0, 10, True)], [("a", 10, 1, True)], [("a", 11, 1, True)]]
    assert [d.finish for d in deltas] == [None, None, "length"]
    assert tokens_of(deltas) == expected_output(request("a", range(10), max_tokens=3))[0]


def test_a_stop_token_ends_the_sequence_and_is_reported() -> None:
    stop = expected_output(request("a", range(6), max_tokens=8))[0][2]
    engine = core()
    engine.add(request("a", range(6), max_tokens=8, stop_ids=(stop,)))
    deltas = drain(engine)["a"]
    assert tokens_of(deltas)[-1] == stop
    assert deltas[-1].finish == "stop"


def test_long_prompts_are_chunked_and_decodes_go_first() -> None:
    engine = core(step_tokens=8)
    engine.add(request("a", range(3), max_tokens=6))
    engine.step()
    engine.add(request("b", range(20), max_tokens=2))
    drain(engine)
    steps = steps_of(engine)
    assert steps[1] == [("a", 3, 1, True), ("b", 0, 7, False)]
    assert steps[2] == [("a", 4, 1, True), ("b", 7, 7, False)]
    assert steps[3] == [("a", 5, 1, True), ("b", 14, 6, True)]


def test_prefill_is_announced_before_the_first_token() -> None:
    engine = core(step_tokens=4)
    engine.add(request("a", range(10), max_tokens=1))
    assert engine.step() == [TokenDelta(id="a")]
    assert engine.step() == []


def test_a_shared_prefix_is_taken_from_the_cache_and_reported() -> None:
    engine = core()
    engine.add(request("a", range(12), max_tokens=2, tenant="t"))
    drain(engine)
    engine.add(request("b", [*range(12), 50], max_tokens=2, tenant="t"))
    engine.add(request("c", [*range(12), 50], max_tokens=2, tenant="other"))
    deltas = drain(engine)
    assert deltas["b"][0].cached_tokens == 12
    assert deltas["c"][0].cached_tokens == 0
    assert tokens_of(deltas["b"]) == tokens_of(deltas["c"])


def test_sixteen_requests_advance_in_one_batch() -> None:
    engine = core(kv_blocks=200)
    for i in range(16):
        engine.add(request(str(i), range(i, i + 5), max_tokens=4))
    drain(engine)
    assert [len(step) for step in steps_of(engine)] == [16, 16, 16, 16]


def test_requests_wait_for_blocks_and_say_why() -> None:
    engine = core(kv_blocks=4)
    engine.add(request("a", range(8), max_tokens=8))
    engine.add(request("b", range(50, 58), max_tokens=8))
    engine.step()
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.waits) == (1, 1, {"kv_cache": 1})
    assert set(drain(engine)) == {"a", "b"}


def test_requests_wait_for_places_and_say_why() -> None:
    engine = core(max_sequences=1)
    engine.add(request("a", range(3)))
    engine.add(request("b", range(3)))
    engine.step()
    assert engine.stats().waits == {"max_sequences": 1}


def test_the_newest_is_preempted_and_its_answer_does_not_change() -> None:
    requests = [request(name, range(start, start + 7), max_tokens=12) for name, start in (("a", 0), ("b", 20))]
    engine = core(kv_blocks=7)
    for each in requests:
        engine.add(each)
    deltas = drain(engine)
    assert engine.stats().preemptions > 0
    for each in requests:
        assert tokens_of(deltas[each.id]) == expected_output(each)[0]
    last = {name: max(i for i, step in enumerate(steps_of(engine)) if name in [c[0] for c in step]) for name in "ab"}
    assert last["a"] < last["b"], "the oldest work is protected"


def test_abort_frees_blocks_at_once() -> None:
    engine = core()
    engine.add(request("a", range(10), max_tokens=50))
    engine.add(request("b", range(10), max_tokens=50))
    engine.step()
    engine.abort("a")
    engine.abort("b")
    assert not engine.has_work
    assert engine.stats().kv_blocks_used == 0


def test_abort_while_waiting() -> None:
    engine = core(max_sequences=1)
    engine.add(request("a", range(3), max_tokens=3))
    engine.add(request("b", range(3)))
    engine.step()
    engine.abort("b")
    assert set(drain(engine)) == {"a"}


def test_what_can_never_fit_is_refused() -> None:
    scheduler = core(kv_blocks=2).scheduler
    with pytest.raises(ValueError, match="9 tokens, but the KV cache holds 8"):
        scheduler.add(request("a", range(4), max_tokens=5))
    with pytest.raises(ValueError, match="at least one prompt token"):
        scheduler.add(request("a", [], max_tokens=5))
    scheduler.add(request("a", range(3), max_tokens=5))


def test_the_queue_is_bounded() -> None:
    scheduler = core(max_sequences=1, max_waiting=1).scheduler
    scheduler.add(request("a", [1]))
    scheduler.add(request("b", [1]))
    with pytest.raises(QueueFull):
        scheduler.add(request("c", [1]))


def test_a_request_that_finds_a_free_place_needs_no_queue() -> None:
    engine = core(max_sequences=2, max_waiting=0)
    engine.add(request("a", [1]))
    engine.add(request("b", [1]))
    with pytest.raises(QueueFull):
        engine.scheduler.add(request("c", [1]))
    finished = [deltas[-1].finish for deltas in drain(engine).values()]
    assert finished == ["length", "length"]


def test_an_empty_queue_has_no_reason_to_wait() -> None:
    engine = core(max_sequences=1)
    engine.add(request("a", [1], max_tokens=9))
    engine.add(request("b", [1]))
    engine.step()
    assert engine.stats().waits == {"max_sequences": 1}
    engine.abort("b")
    assert engine.stats().waits == {}


def test_refusals_reach_the_client_as_error_deltas() -> None:
    engine = core(kv_blocks=1)
    engine.add(request("a", range(20)))
    (delta,) = engine.step()
    assert delta.finish == "error"
    assert "KV cache" in (delta.error or "")


class Refusing(ScriptedRunner):
    def execute(self, chunks: list[Chunk]) -> Sampled:
        if any(chunk.sequence.id == "bad" for chunk in chunks):
            raise ValueError("token 999 is not in the vocabulary")
        return super().execute(chunks)


def test_a_step_that_cannot_run_fails_its_sequences_only() -> None:
    engine = EngineCore(Scheduler(SchedulerConfig(kv_blocks=64, block_size=BLOCK, max_sequences=1)), Refusing(BLOCK))
    engine.add(request("bad", [999]))
    engine.add(request("good", [1, 2]))
    deltas = drain(engine)
    assert [d.finish for d in deltas["bad"]] == ["error"]
    assert tokens_of(deltas["good"]) == expected_output(request("good", [1, 2]))[0]
    assert engine.stats().kv_blocks_used == 0


class Breaking(ScriptedRunner):
    def execute(self, chunks: list[Chunk]) -> Sampled:
        for chunk in chunks:
            if chunk.sequence.id in FAULTS:
                raise FAULTS[chunk.sequence.id]
        return super().execute(chunks)


FAULTS = {
    "range": OverflowError("Python integer 9 out of bounds for int32"),
    "type": TypeError("'NoneType' object"),
    "index": IndexError("list index out of range"),
    "memory": MemoryError(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sequence_that_breaks_a_shared_step_fails_alone_and_without_internals(fault: str) -> None:
    engine = EngineCore(Scheduler(SchedulerConfig(kv_blocks=64, block_size=BLOCK)), Breaking(BLOCK))
    asked = {name: request(name, [1, 2, number]) for number, name in enumerate(("a", fault, "b"))}
    for each in asked.values():
        engine.add(each)
    deltas = drain(engine)
    assert [(d.finish, d.error) for d in deltas[fault]] == [("error", "the engine could not run this request")]
    for name in ("a", "b"):
        assert tokens_of(deltas[name]) == expected_output(asked[name])[0]
    assert engine.stats().kv_blocks_used == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": [VOCABULARY]}, {"prompt": [-1]}, {"stop_ids": (VOCABULARY,)}, {"output": [VOCABULARY]},
        {"choice": 2**32}, {"choice": -1}, {"max_tokens": 2**31}, {"min_tokens": -1},
        {"sampling": SamplingParams(seed=2**64)}, {"sampling": SamplingParams(top_k=2**31)},
        {"sampling": SamplingParams(logprobs=21)}, {"sampling": SamplingParams(temperature=float("nan"))},
        {"sampling": SamplingParams(temperature=1e300)}, {"sampling": SamplingParams(top_p=float("inf"))},
        {"sampling": SamplingParams(logit_bias={VOCABULARY: 1.0})},
        {"sampling": SamplingParams(logit_bias={1: float("nan")})},
    ],
)  # fmt: skip
def test_numbers_that_no_array_holds_never_reach_a_step(changes: dict[str, Any]) -> None:
    scheduler = Scheduler(SchedulerConfig(kv_blocks=64, block_size=BLOCK))
    engine = EngineCore(scheduler, ScriptedRunner(BLOCK), vocab_size=VOCABULARY)
    engine.add(msgspec.structs.replace(request("bad", [1, 2]), **changes))
    (delta,) = engine.step()
    assert (delta.finish, delta.refused, delta.tokens) == ("error", True, [])
    assert not engine.has_work


class Barren(ScriptedRunner):
    """A model that has no next token to give."""

    def execute(self, chunks: list[Chunk]) -> Sampled:
        sampled = super().execute(chunks)
        return Sampled([-1] * len(sampled.tokens), sampled.logprobs)


def test_whose_fault_it_is_that_no_token_is_allowed() -> None:
    engine = EngineCore(Scheduler(SchedulerConfig(kv_blocks=64, block_size=BLOCK)), Barren(BLOCK))
    engine.add(request("asked", [1], max_tokens=5, min_tokens=2))
    engine.add(request("broken", [1]))
    asked, broken = engine.step()
    assert (asked.finish, asked.refused, broken.finish, broken.refused) == ("error", True, "error", False)


def test_generation_resumes_after_earlier_output() -> None:
    whole = expected_output(request("a", range(6), max_tokens=7))[0]
    engine = core()
    engine.add(request("a", range(6), max_tokens=7, output=whole[:3]))
    assert tokens_of(drain(engine)["a"]) == whole[3:]


def test_priority_goes_before_arrival() -> None:
    engine = core(max_sequences=1)
    for name, priority in (("late", 1), ("first", 0), ("second", 0)):
        engine.add(request(name, [1, 2], max_tokens=1, priority=priority))
    drain(engine)
    assert [step[0][0] for step in steps_of(engine)] == ["first", "second", "late"]


def test_penalty_counts_follow_prompt_and_output() -> None:
    params = SamplingParams(presence_penalty=0.5)
    scheduler = core().scheduler
    scheduler.add(TokenRequest(id="a", prompt=[1, 2, 2], sampling=params, max_tokens=9, output=[2, 3, 3]))
    assert scheduler._places.waiting[0].counts == {1: 0, 2: 1, 3: 2}


prompts = st.lists(st.integers(0, 3), min_size=1, max_size=14)
plans = st.lists(
    st.tuples(prompts, st.integers(1, 10), st.integers(0, 6), st.sampled_from(["", "x"]), st.integers(0, 12)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(plans, st.integers(6, 24), st.integers(1, 9), st.integers(1, 4), st.booleans())
def test_any_schedule_gives_each_request_its_own_answer(
    plan: list[tuple[list[int], int, int, str, int]], kv_blocks: int, step_tokens: int, places: int, cache: bool
) -> None:
    """Whatever the arrivals, chunking, cache hits, preemptions and aborts: outputs are those of a request alone, every
    request ends once, and no block is lost."""
    engine = core(kv_blocks, step_tokens=step_tokens, max_sequences=places, prefix_cache=cache)
    requests = {
        str(i): request(str(i), prompt, max_tokens, stop_ids=(i % VOCABULARY,), tenant=tenant)
        for i, (prompt, max_tokens, _, tenant, _) in enumerate(plan)
    }
    arrivals = {str(i): at for i, (_, _, at, _, _) in enumerate(plan)}
    aborts = {str(i): at for i, (_, _, _, _, at) in enumerate(plan) if at >= 9}
    seen: dict[str, list[TokenDelta]] = {name: [] for name in requests}
    for tick in range(2000):
        for name, at in arrivals.items():
            if at == tick:
                engine.add(requests[name])
        for name, at in aborts.items():
            if at == tick:
                engine.abort(name)
        for delta in engine.step():
            seen[delta.id].append(delta)
        if tick > 20 and not engine.has_work:
            break
    assert not engine.has_work
    assert engine.stats().kv_blocks_used == 0
    for name, each in requests.items():
        output, finish = expected_output(each)
        ends = [delta.finish for delta in seen[name] if delta.finish]
        if name in aborts and not ends:
            assert tokens_of(seen[name]) == output[: len(tokens_of(seen[name]))]
        else:
            assert tokens_of(seen[name]) == output
            assert ends == [finish]
            assert seen[name][-1].finish == finish
