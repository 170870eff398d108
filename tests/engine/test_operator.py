"""What an operator sees of open sequences and does to them, over the engine process and its restarts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from millstream.engine.client import EngineProcess
from millstream.engine.config import EngineConfig
from millstream.engine.protocol import SamplingParams, SequenceView, TokenDelta, TokenRequest, TokenStream
from support.scripted_runner import expected_output
from support.step_gate import StepGate
from support.token_streams import read
from support.waiting import until_told


@pytest.fixture(autouse=True)
def importable_worker(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))


@asynccontextmanager
async def running(state: Path, *, steps: int, **options: int) -> AsyncIterator[tuple[EngineProcess, StepGate]]:
    """An engine that stands still after some steps, until the gate is opened; at the end it is."""
    gate = StepGate(state, steps)
    config = EngineConfig(model_path=str(state), model_name="plain", **options)
    engine = await EngineProcess.start(config, worker="support.scripted_worker")
    try:
        yield engine, gate
    finally:
        gate.open()
        await engine.close()


def request(name: str, start: int, max_tokens: int = 20) -> TokenRequest:
    return TokenRequest(name, list(range(start, start + 6)), SamplingParams(), max_tokens)


async def until(engine: EngineProcess, name: str, *, state: str, reason: str | None = None) -> SequenceView:
    """Wait until a sequence is there. While there is no engine, this looks at every turn of the event loop."""

    def those(views: Iterable[SequenceView]) -> list[SequenceView]:
        return [view for view in views if (view.id, view.state, view.wait_reason) == (name, state, reason)]

    (view,) = those(await until_told(engine.sequences, those, f"{name} is never {state} ({reason})"))
    return view


async def collect(stream: TokenStream, seen: list[TokenDelta]) -> None:
    async for delta in stream:
        seen.append(delta)


async def test_every_open_sequence_is_told_of_in_order_of_arrival(tmp_path: Path) -> None:
    async with running(tmp_path / "count", steps=0, max_sequences=1) as (engine, gate):
        assert await engine.sequences() == []
        streams = [await engine.submit(request(name, ord(name[0]) - 97)) for name in "abc"]
        await engine.sequences()  # all are there before the first step ends
        gate.allow(1)
        await anext(streams[0])
        await until(engine, "c", state="queued", reason="max_sequences")
        views = await engine.sequences()
        assert [view.id for view in views] == ["a", "b", "c"]
        assert (views[0].state, views[0].wait_reason, views[0].prompt_done) == ("decode", None, 6)
        assert views[0].generated >= 1
        assert views[1:] == [SequenceView(name, "queued", "max_sequences") for name in "bc"]
        for stream in streams:
            await stream.aclose()
        assert await engine.sequences() == []


async def test_a_held_request_rests_until_it_is_released(tmp_path: Path) -> None:
    async with running(tmp_path / "count", steps=2) as (engine, gate):
        a, b = request("a", 1), request("b", 10)
        seen: list[TokenDelta] = []
        reading = asyncio.create_task(collect(await engine.submit(a), seen))
        other = await engine.submit(b)
        await until(engine, "a", state="decode")
        assert engine.hold("a")
        await engine.sequences()  # it has heard of that
        gate.open()
        view = await until(engine, "a", state="paused", reason="held")
        assert await read(other) == expected_output(b)
        assert (await engine.stats()).waits == {"held": 1}
        held = await until(engine, "a", state="paused", reason="held")
        assert held.generated == view.generated < a.max_tokens
        assert engine.release("a")
        await reading
        assert [token for delta in seen for token in delta.tokens] == expected_output(a)[0]


async def test_a_hold_outlives_the_engine_and_is_known_while_it_is_down(tmp_path: Path) -> None:
    async with running(tmp_path / "count", steps=2) as (engine, gate):
        a, b = request("a", 1), request("b", 10)
        first, second = await engine.submit(a), await engine.submit(b)
        begun = await anext(first)
        engine.hold("a")
        await engine.sequences()  # it has heard of that
        gate.allow(4)
        await until(engine, "a", state="paused", reason="held")
        os.kill(engine.pid, signal.SIGKILL)
        view = await until(engine, "b", state="queued", reason="engine_restart")
        assert view.prompt_done == 0
        gate.open()
        await until(engine, "a", state="paused", reason="held")
        assert (await read(second)) == expected_output(b)
        assert (await engine.sequences())[0].state == "paused"
        engine.release("a")
        tokens, finish = await read(first)
        assert ([*begun.tokens, *tokens], finish) == expected_output(a)


async def test_a_request_that_leaves_while_it_is_held_frees_its_place(tmp_path: Path) -> None:
    async with running(tmp_path / "count", steps=1) as (engine, _):
        stream = await engine.submit(request("a", 1))
        await anext(stream)
        engine.hold("a")
        await stream.aclose()
        assert not engine.release("a")
        assert not engine.hold("a")
        assert not engine.reprioritise("a", 1)
        assert await engine.sequences() == []


async def test_a_request_that_is_raised_takes_a_place(tmp_path: Path) -> None:
    async with running(tmp_path / "count", steps=0, max_sequences=1) as (engine, gate):
        requests = [request("a", 1, 40), request("b", 10, 4)]
        first, second = [await engine.submit(each) for each in requests]
        await engine.sequences()  # both are there before the first step ends
        gate.allow(1)
        begun = await anext(first)
        await until(engine, "b", state="queued", reason="max_sequences")
        assert engine.reprioritise("b", -1)
        await engine.sequences()  # it has heard of that
        gate.allow(10)
        assert await read(second) == expected_output(requests[1])
        assert [view.id for view in await engine.sequences()] == ["a"]
        gate.open()
        tokens, finish = await read(first)
        assert ([*begun.tokens, *tokens], finish) == expected_output(requests[0])
