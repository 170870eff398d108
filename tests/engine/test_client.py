import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from millstream.engine import streams
from millstream.engine.client import EngineProcess, EngineStartError
from millstream.engine.config import EngineConfig
from millstream.engine.protocol import SamplingParams, TokenRequest
from millstream.ir.errors import ApiError
from support.scripted_runner import expected_output, expected_scores
from support.token_streams import read


@pytest.fixture(autouse=True)
def importable_worker(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))


def config(behaviour: str = "plain", **options: int) -> EngineConfig:
    return EngineConfig(model_path="none", model_name=behaviour, **options)


@asynccontextmanager
async def running(behaviour: str = "plain", **options: int) -> AsyncIterator[EngineProcess]:
    engine = await EngineProcess.start(config(behaviour, **options), worker="support.scripted_worker")
    try:
        yield engine
    finally:
        await engine.close()


def request(name: str, start: int, max_tokens: int = 20) -> TokenRequest:
    return TokenRequest(id=name, prompt=list(range(start, start + 6)), sampling=SamplingParams(), max_tokens=max_tokens)


async def settled(engine: EngineProcess) -> None:
    """Wait until the engine says that nothing runs."""
    for _ in range(200):
        stats = await engine.stats()
        if not stats.running and not stats.waiting:
            assert stats.kv_blocks_used == 0
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the engine does not become idle")


async def test_sixteen_streams_at_once_give_each_its_own_tokens() -> None:
    async with running() as engine:
        requests = [request(str(i), i) for i in range(16)]
        streams = [await engine.submit(each) for each in requests]
        answers = await asyncio.gather(*(read(stream) for stream in streams))
        assert answers == [expected_output(each) for each in requests]
        await settled(engine)


async def test_a_reader_that_leaves_frees_its_place() -> None:
    async with running("slow") as engine:
        stream = await engine.submit(request("a", 1, max_tokens=200))
        await anext(stream)
        assert (await engine.stats()).running == 1
        await stream.aclose()
        await stream.aclose()
        await settled(engine)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_leaving_while_queued() -> None:
    async with running("slow", max_sequences=1) as engine:
        first = await engine.submit(request("a", 1, max_tokens=5))
        second = await engine.submit(request("b", 2))
        await anext(first)
        assert (await engine.stats()).waiting == 1
        await second.aclose()
        await read(first)
        await settled(engine)


async def test_a_step_that_takes_long_leaves_questions_answered() -> None:
    async with running("stuck") as engine:
        stream = await engine.submit(request("a", 1))
        later = await engine.submit(request("b", 1))
        await started(engine)
        first = await asyncio.wait_for(engine.stats(), 2)
        await asyncio.sleep(0.05)
        second = await asyncio.wait_for(engine.stats(), 2)
        assert first.running + first.waiting == 2
        assert first.steps == second.steps == 0
        assert second.idle_seconds > first.idle_seconds
        await stream.aclose()
        await later.aclose()


async def started(engine: EngineProcess) -> None:
    """Wait until a sequence is in the batch."""
    for _ in range(500):
        if (await engine.stats()).running:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nothing runs")


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


async def test_time_is_up_while_it_runs_and_while_it_waits() -> None:
    async with running("slow", max_sequences=1) as engine:
        soon = time.monotonic() + 0.4
        long = replace(request("a", 1, max_tokens=200), deadline=soon)
        waiting = replace(request("b", 2), deadline=soon)
        streams = [await engine.submit(long), await engine.submit(waiting)]
        (tokens, finish), empty = await asyncio.gather(*map(read, streams))
        assert (finish, empty) == ("timeout", ([], "timeout"))
        assert 0 < len(tokens) < 200
        assert tokens == expected_output(long)[0][: len(tokens)]
        await settled(engine)


async def test_a_deadline_holds_while_there_is_no_engine() -> None:
    async with running("slow") as engine:
        stream = await engine.submit(replace(request("a", 1, max_tokens=200), deadline=time.monotonic() + 0.3))
        await anext(stream)
        os.kill(engine.pid, signal.SIGKILL)
        assert (await asyncio.wait_for(read(stream), 5))[1] == "timeout"


async def test_an_answer_that_is_complete_in_time_knows_nothing_of_its_deadline() -> None:
    async with running() as engine:
        each = replace(request("a", 1), deadline=time.monotonic() + 60)
        assert await read(await engine.submit(each)) == expected_output(each)


async def test_a_reader_that_stops_is_paused_and_loses_nothing_when_it_goes_on() -> None:
    async with running("slow", step_tokens=64) as engine:
        long = request("a", 1, max_tokens=100)
        streams.UNREAD_TOKENS, kept = 16, streams.UNREAD_TOKENS
        try:
            stream = await engine.submit(long)
            for _ in range(500):
                stats = await engine.stats()
                if stats.waits == {"paused_reader": 1}:
                    break
                await asyncio.sleep(0.01)
            assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 1, 0)
            assert stats.generated_tokens < 90
            assert await read(await engine.submit(request("b", 2))) == expected_output(request("b", 2))
            assert await read(stream) == expected_output(long)
        finally:
            streams.UNREAD_TOKENS = kept
        await settled(engine)


async def test_a_reader_of_a_scored_prompt_that_stops_is_paused_and_loses_nothing() -> None:
    """What a prompt's log probabilities take is more than what as many tokens take."""
    async with running("slow", step_tokens=16) as engine:
        long = replace(request("a", 1), prompt=list(range(90)) * 2, prompt_logprobs=3, max_tokens=5)
        streams.UNREAD_TOKENS, kept = 32, streams.UNREAD_TOKENS
        try:
            stream = await engine.submit(long)
            for _ in range(500):
                stats = await engine.stats()
                if stats.waits == {"paused_reader": 1}:
                    break
                await asyncio.sleep(0.01)
            assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 1, 0)
            deltas = [delta async for delta in stream]
        finally:
            streams.UNREAD_TOKENS = kept
        assert [score for delta in deltas for score in delta.prompt_logprobs] == expected_scores(long)
        assert [token for delta in deltas for token in delta.tokens] == expected_output(long)[0]
        await settled(engine)


async def test_a_paused_reader_may_leave_and_one_that_resumes_in_an_outage_goes_on() -> None:
    async with running("slow", step_tokens=64) as engine:
        streams.UNREAD_TOKENS, kept = 16, streams.UNREAD_TOKENS
        try:
            long = request("a", 1, max_tokens=100)
            stays, leaves = await engine.submit(long), await engine.submit(request("b", 2, max_tokens=100))
            for _ in range(500):
                if (waits := (await engine.stats()).waits) == {"paused_reader": 2}:
                    break
                await asyncio.sleep(0.01)
            assert waits == {"paused_reader": 2}
            await leaves.aclose()
            os.kill(engine.pid, signal.SIGKILL)
            assert await asyncio.wait_for(read(stays), 30) == expected_output(long)
        finally:
            streams.UNREAD_TOKENS = kept
        await settled(engine)
