"""Pooling requests: only read, the same bits under every schedule, begun anew after preemption."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.core import EngineCore
from millstream.engine.protocol import Pooling, SamplingParams, TokenDelta, TokenRequest
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Scheduler
from support.scripted_runner import ScriptedRunner, expected_output, hidden_state

BLOCK = 4


def core(kv_blocks: int = 64, **options: int) -> EngineCore:
    config = SchedulerConfig(kv_blocks=kv_blocks, block_size=BLOCK, **options)
    return EngineCore(Scheduler(config), ScriptedRunner(BLOCK))


def pooled(name: str, prompt: list[int], pooling: Pooling) -> TokenRequest:
    return TokenRequest(id=name, prompt=prompt, sampling=SamplingParams(), max_tokens=0, pooling=pooling)


def generated(name: str, prompt: list[int], max_tokens: int) -> TokenRequest:
    return TokenRequest(id=name, prompt=prompt, sampling=SamplingParams(), max_tokens=max_tokens)


def expected(prompt: list[int], pooling: Pooling) -> bytes:
    rows = [hidden_state(prompt[: n + 1]).astype(np.float64) for n in range(len(prompt))]
    vector = {"last": rows[-1], "cls": rows[0], "mean": sum(rows[1:], rows[0]) / len(rows)}[pooling]
    return vector.astype("<f4").tobytes()


def drain(engine: EngineCore) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {}
    for _ in range(10_000):
        if not engine.has_work:
            return deltas
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
    raise AssertionError("the scheduler does not come to an end")


PROMPT = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@given(st.lists(st.tuples(PROMPT, st.sampled_from(["mean", "cls", "last", None])), min_size=1, max_size=8), st.data())
def test_every_schedule_gives_the_same_bits(work: list[tuple[list[int], Pooling | None]], data: st.DataObject) -> None:
    """Mixed with generation, in small steps, with too few blocks for all and with shared prefixes."""
    engine = core(
        data.draw(st.integers(10, 20)),
        step_tokens=data.draw(st.integers(1, 12)),
        max_sequences=data.draw(st.integers(1, 5)),
    )
    requests = {
        str(k): generated(str(k), prompt, 5) if pooling is None else pooled(str(k), prompt, pooling)
        for k, (prompt, pooling) in enumerate(work)
    }
    for request in requests.values():
        engine.add(request)
    deltas = drain(engine)
    assert engine.stats().kv_blocks_used == 0
    for name, request in requests.items():
        tokens = [token for delta in deltas[name] for token in delta.tokens]
        assert all(delta.finish is None for delta in deltas[name][:-1])
        if request.pooling is None:
            assert tokens == expected_output(request)[0]
        else:
            assert (tokens, deltas[name][-1].finish) == ([], "stop")
            assert deltas[name][-1].embedding == expected(request.prompt, request.pooling)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_only_the_last_token_can_come_from_the_cache(pooling: Pooling) -> None:
    engine = core()
    engine.add(generated("a", list(range(12)), 1))
    drain(engine)
    prompt = [*range(12), 50]
    engine.add(pooled("b", prompt, pooling))
    (delta,) = drain(engine)["b"]
    assert delta.cached_tokens == (12 if pooling == "last" else 0)
    assert delta.embedding == expected(prompt, pooling)
    assert engine.stats().prompt_tokens == 25


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_what_was_read_can_be_taken_from_the_cache(pooling: Pooling) -> None:
    engine = core()
    engine.add(pooled("a", list(range(12)), pooling))
    drain(engine)
    engine.add(generated("b", [*range(12), 50], 1))
    assert drain(engine)["b"][-1].cached_tokens == 12


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_preempted_vector_begins_anew(pooling: Pooling) -> None:
    engine = core(7, step_tokens=2, prefix_cache=False)
    engine.add(generated("old", [1], 24))
    engine.step()
    prompt = list(range(20))
    engine.add(pooled("new", prompt, pooling))
    deltas = drain(engine)
    assert engine.stats().preemptions > 0
    assert deltas["new"][-1].embedding == expected(prompt, pooling)


def test_aborted_while_it_is_read() -> None:
    engine = core(step_tokens=4)
    engine.add(pooled("a", list(range(20)), "mean"))
    engine.step()
    engine.abort("a")
    assert not engine.has_work
    assert engine.stats().kv_blocks_used == 0
