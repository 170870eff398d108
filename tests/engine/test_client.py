import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from millstream.engine import streams
from millstream.engine.client import EngineProcess, EngineStartError
from millstream.engine.config import EngineConfig
from millstream.engine.protocol import EngineStats, SamplingParams, TokenRequest
from millstream.ir.errors import ApiError
from support.scripted_runner import expected_output, expected_scores
from support.step_gate import StepGate
from support.token_streams import read
from support.waiting import until_told


@pytest.fixture(autouse=True)
def importable_worker(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))


def config(behaviour: str = "plain", state: Path | str = "none", **options: int) -> EngineConfig:
    return EngineConfig(model_path=str(state), model_name=behaviour, **options)


@asynccontextmanager
async def running(behaviour: str = "plain", **options: int) -> AsyncIterator[EngineProcess]:
    engine = await EngineProcess.start(config(behaviour, **options), worker="support.scripted_worker")
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def gated(state: Path, steps: int, **options: int) -> AsyncIterator[tuple[EngineProcess, StepGate]]:
    """An engine that stands still after some steps, until the gate is opened; at the end it is."""
    gate = StepGate(state, steps)
    engine = await EngineProcess.start(config("plain", state, **options), worker="support.scripted_worker")
    try:
        yield engine, gate
    finally:
        gate.open()
        await engine.close()


def request(name: str, start: int, max_tokens: int = 20) -> TokenRequest:
    return TokenRequest(id=name, prompt=list(range(start, start + 6)), sampling=SamplingParams(), max_tokens=max_tokens)


async def settled(engine: EngineProcess) -> None:
    """Wait until the engine says that nothing runs."""
    await until(engine, lambda stats: not stats.running and not stats.waiting, "idle")
    assert (await engine.stats()).kv_blocks_used == 0


async def until(engine: EngineProcess, there: Callable[[EngineStats], bool], what: str) -> EngineStats:
    """Wait until the engine is somewhere. While there is none, this looks at every turn of the event loop."""
    return await until_told(engine.stats, there, f"the engine does not become {what}")


async def made(engine: EngineProcess, steps: int) -> None:
    """Wait until a gated engine has made its steps, or needs no more of them, its readers were given what came of all
    but the last, and the engine was told what follows from that."""
    await until(engine, lambda stats: stats.steps == steps or (stats.steps > 0 and not stats.running), "still")
    await engine.stats()


def later(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so much time pass at once, on the clock by which deadlines are."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + seconds)


async def test_sixteen_streams_at_once_give_each_its_own_tokens() -> None:
    async with running() as engine:
        requests = [request(str(i), i) for i in range(16)]
        streams = [await engine.submit(each) for each in requests]
        answers = await asyncio.gather(*(read(stream) for stream in streams))
        assert answers == [expected_output(each) for each in requests]
        await settled(engine)


async def test_a_reader_that_leaves_frees_its_place(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", steps=1) as (engine, gate):
        stream = await engine.submit(request("a", 1, max_tokens=200))
        await anext(stream)
        assert (await engine.stats()).running == 1
        await stream.aclose()
        await stream.aclose()
        await engine.stats()  # it has heard of that
        gate.open()
        await settled(engine)
        assert (await engine.stats()).generated_tokens <= 2
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_leaving_while_queued(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", steps=1, max_sequences=1) as (engine, gate):
        first = await engine.submit(request("a", 1, max_tokens=5))
        second = await engine.submit(request("b", 2))
        await anext(first)
        assert (await engine.stats()).waiting == 1
        await second.aclose()
        await engine.stats()  # it has heard of that
        gate.open()
        await read(first)
        await settled(engine)
        assert (await engine.stats()).generated_tokens == 5


async def test_a_step_that_takes_long_leaves_questions_answered(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", steps=0) as (engine, _):
        stream = await engine.submit(request("a", 1))
        later = await engine.submit(request("b", 1))
        first = await until(engine, lambda stats: stats.running > 0, "busy")
        await asyncio.sleep(0.05)
        second = await engine.stats()
        assert first.running + first.waiting == 2
        assert first.steps == second.steps == 0
        assert second.idle_seconds > first.idle_seconds
        await stream.aclose()
        await later.aclose()


async def test_a_full_queue_is_refused_at_once() -> None:
    async with running("slow", max_sequences=1, max_waiting=1) as engine:
        await engine.submit(request("a", 1, max_tokens=100))
        await engine.submit(request("b", 1, max_tokens=100))
        with pytest.raises(ApiError) as caught:
            await engine.submit(request("c", 1))
        assert caught.value.status == 429
        assert caught.value.retry_after is not None


async def test_what_can_never_fit_is_refused_at_once() -> None:
    async with running() as engine:
        with pytest.raises(ApiError, match="KV cache holds 256") as caught:
            await engine.submit(request("a", 1, max_tokens=1000))
        assert caught.value.status == 400


async def test_start_errors_are_for_the_reader() -> None:
    with pytest.raises(EngineStartError, match="the model file is broken"):
        await EngineProcess.start(config("broken"), worker="support.scripted_worker")
    with pytest.raises(EngineStartError, match="exit status 7"):
        await EngineProcess.start(config("dies"), worker="support.scripted_worker")


async def test_closing_ends_the_process() -> None:
    async with running() as engine:
        pid = engine.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_time_is_up_while_it_runs_and_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gated(tmp_path / "count", steps=3, max_sequences=1) as (engine, gate):
        soon = asyncio.get_running_loop().time() + 60
        long = replace(request("a", 1, max_tokens=200), deadline=soon)
        waiting = replace(request("b", 2), deadline=soon)
        streams = [await engine.submit(long), await engine.submit(waiting)]
        await made(engine, 3)
        later(61, monkeypatch)
        (tokens, finish), empty = await asyncio.gather(*map(read, streams))
        assert (finish, empty) == ("timeout", ([], "timeout"))
        assert 2 <= len(tokens) <= 3
        assert tokens == expected_output(long)[0][: len(tokens)]
        await engine.stats()  # it has heard of that
        gate.open()
        await settled(engine)
        assert (await engine.stats()).generated_tokens <= 4


async def test_a_deadline_holds_while_there_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gated(tmp_path / "count", steps=1) as (engine, _):
        soon = asyncio.get_running_loop().time() + 60
        stream = await engine.submit(replace(request("a", 1, max_tokens=200), deadline=soon))
        await anext(stream)
        os.kill(engine.pid, signal.SIGKILL)
        await until(engine, lambda stats: stats.outage is not None, "down")
        later(61, monkeypatch)
        assert (await read(stream))[1] == "timeout"


async def test_an_answer_that_is_complete_in_time_knows_nothing_of_its_deadline() -> None:
    async with running() as engine:
        each = replace(request("a", 1), deadline=asyncio.get_running_loop().time() + 60)
        assert await read(await engine.submit(each)) == expected_output(each)


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that has 16 tokens to read is waited for."""
    monkeypatch.setattr(streams, "UNREAD_TOKENS", 16)


@pytest.mark.usefixtures("short_patience")
async def test_a_reader_that_stops_is_paused_and_loses_nothing_when_it_goes_on(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", steps=30, step_tokens=64) as (engine, gate):
        long = request("a", 1, max_tokens=245)
        stream = await engine.submit(long)
        await made(engine, 30)
        gate.open()
        stats = await until(engine, lambda stats: stats.waits == {"paused_reader": 1}, "paused")
        assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 1, 0)
        assert stats.generated_tokens <= 31
        assert await read(await engine.submit(request("b", 2))) == expected_output(request("b", 2))
        assert await read(stream) == expected_output(long)
        await settled(engine)


@pytest.mark.usefixtures("short_patience")
async def test_a_reader_of_a_scored_prompt_that_stops_is_paused_and_loses_nothing(tmp_path: Path) -> None:
    """What a prompt's log probabilities take is more than what as many tokens take."""
    async with gated(tmp_path / "count", steps=5, step_tokens=16) as (engine, gate):
        long = replace(request("a", 1), prompt=list(range(90)) * 2, prompt_logprobs=3, max_tokens=5)
        stream = await engine.submit(long)
        await made(engine, 5)
        gate.open()
        stats = await until(engine, lambda stats: stats.waits == {"paused_reader": 1}, "paused")
        assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 1, 0)
        deltas = [delta async for delta in stream]
        assert [score for delta in deltas for score in delta.prompt_logprobs] == expected_scores(long)
        assert [token for delta in deltas for token in delta.tokens] == expected_output(long)[0]
        await settled(engine)


@pytest.mark.usefixtures("short_patience")
async def test_a_paused_reader_may_leave_and_one_that_resumes_in_an_outage_goes_on(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", steps=0, step_tokens=64) as (engine, gate):
        long = request("a", 1, max_tokens=120)
        stays, leaves = await engine.submit(long), await engine.submit(request("b", 2, max_tokens=120))
        await engine.stats()  # both are there before the first step ends
        gate.allow(40)
        await made(engine, 40)
        gate.open()
        await until(engine, lambda stats: stats.waits == {"paused_reader": 2}, "paused")
        await leaves.aclose()
        os.kill(engine.pid, signal.SIGKILL)
        assert await asyncio.wait_for(read(stays), 60) == expected_output(long)
        await settled(engine)
