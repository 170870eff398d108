"""Streams that outlive the engine process: killed, stopped, poisoned, and not to be started again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from millstream.engine.client import EngineProcess
from millstream.engine.config import EngineConfig
from millstream.engine.protocol import EngineStats, SamplingParams, TokenRequest
from millstream.engine.restarts import Supervision
from millstream.engine.totals import COUNTERS
from millstream.engine.vitals import ANSWERING
from millstream.ir.errors import ApiError
from support.scripted_runner import expected_output, expected_scores
from support.step_gate import StepGate
from support.token_streams import read
from support.waiting import until_told

QUICK = Supervision(first_delay=0.01, longest_delay=0.02, start_failures=3)


@pytest.fixture(autouse=True)
def importable_worker(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))


@asynccontextmanager
async def running(
    behaviour: str, state: Path | None = None, supervision: Supervision = QUICK, **options: int
) -> AsyncIterator[EngineProcess]:
    config = EngineConfig(model_path=str(state or "none"), model_name=behaviour, **options)
    engine = await EngineProcess.start(config, worker="support.scripted_worker", supervision=supervision)
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def gated(
    state: Path, steps: int, behaviour: str = "plain", supervision: Supervision = QUICK, **options: int
) -> AsyncIterator[tuple[EngineProcess, StepGate]]:
    """An engine whose processes stand still after some steps, until the gate is opened; at the end it is."""
    gate = StepGate(state, steps)
    async with running(behaviour, state, supervision, **options) as engine:
        try:
            yield engine, gate
        finally:
            gate.open()


def request(name: str, start: int, max_tokens: int = 30) -> TokenRequest:
    return TokenRequest(id=name, prompt=list(range(start, start + 6)), sampling=SamplingParams(), max_tokens=max_tokens)


async def recovered(engine: EngineProcess) -> EngineStats:
    """The engine's counts once it answers again."""
    return await until_told(engine.stats, lambda stats: stats.outage is None, "it does not come back", pause=0.01)


async def outage(engine: EngineProcess, reason: str) -> None:
    """Wait until the engine is down for this reason. This looks at every turn of the event loop: no outage is as
    short."""
    await until_told(engine.stats, lambda stats: reason in (stats.outage or ""), f"the engine never says {reason!r}")


def threads(pid: int) -> list[str]:
    """Names of a process's threads."""
    return [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]


async def sixteen(engine: EngineProcess) -> None:
    requests = [request(str(i), i) for i in range(16)]
    streams = [await engine.submit(each) for each in requests]
    answers = await asyncio.gather(*(read(stream) for stream in streams))
    assert answers == [expected_output(each) for each in requests]


@pytest.mark.parametrize("steps", ["1", "9 2", "25"])
async def test_sixteen_streams_survive_a_death_at_any_step(tmp_path: Path, steps: str) -> None:
    async with running(f"dies-at {steps}", tmp_path / "count", step_tokens=20) as engine:
        await sixteen(engine)
        assert (await engine.stats()).restarts == len(steps.split())


@pytest.mark.parametrize("taken", [1, 9, 16])
async def test_sixteen_streams_survive_a_death_while_one_is_taken(tmp_path: Path, taken: int) -> None:
    async with running(f"dies-taking {taken}", tmp_path / "count", step_tokens=20) as engine:
        await sixteen(engine)
        assert (await engine.stats()).restarts == 1


@pytest.mark.parametrize("seed", range(2))
async def test_sixteen_streams_survive_kills_at_random_moments(seed: int) -> None:
    chance = random.Random(seed)
    async with running("slow", step_tokens=40) as engine:
        asking = asyncio.create_task(sixteen(engine))
        for _ in range(2):
            await asyncio.sleep(chance.uniform(0, 0.4))
            os.kill(engine.pid, signal.SIGKILL)
            await asyncio.sleep(0.05)
            await recovered(engine)
        await asking
        stats = await engine.stats()
        assert (stats.running, stats.waiting, stats.kv_blocks_used, stats.restarts) == (0, 0, 0, 2)


async def test_counts_are_those_of_all_processes_and_never_go_back() -> None:
    async with running("plain") as engine:
        before = EngineStats()
        for killed in range(3):
            await sixteen(engine)
            stats = await engine.stats()
            assert stats.generated_tokens == 16 * 30 * (killed + 1)
            os.kill(engine.pid, signal.SIGKILL)
            while True:
                now = await engine.stats()
                for name in COUNTERS:
                    assert getattr(now, name) >= getattr(before, name), name
                before = now
                if now.restarts > killed:
                    break
                await asyncio.sleep(0)
        assert (before.outage, before.running, before.restarts) == (None, 0, 3)


async def test_who_waits_for_a_new_engine_is_counted(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", 1) as (engine, _):
        streams = [await engine.submit(request(str(i), i)) for i in range(3)]
        await anext(streams[0])
        os.kill(engine.pid, signal.SIGKILL)
        await outage(engine, "SIGKILL")
        stats = await engine.stats()
        assert (stats.running, stats.waiting, stats.waits) == (0, 3, {"engine_restart": 3})


async def test_an_idle_engine_that_was_killed_is_replaced() -> None:
    async with running("plain") as engine:
        first = engine.pid
        await engine.stats()
        os.kill(first, signal.SIGKILL)
        await asyncio.sleep(0)
        await sixteen(engine)
        assert engine.pid != first
        stats = await engine.stats()
        assert (stats.restarts, stats.resumed) == (1, 0)


async def test_prefill_is_announced_once_and_cached_tokens_stay_what_they_were(tmp_path: Path) -> None:
    async with running("dies-at 6", tmp_path / "count") as engine:
        await read(await engine.submit(request("first", 1, max_tokens=2)))
        deltas = [delta async for delta in await engine.submit(request("second", 1, max_tokens=9))]
        assert {delta.cached_tokens for delta in deltas} == {4}
        assert [token for delta in deltas for token in delta.tokens] == expected_output(request("second", 1, 9))[0]
        stats = await engine.stats()
        assert (stats.restarts, stats.resumed) == (1, 1)


@pytest.mark.parametrize("max_tokens", [0, 5])
async def test_log_probabilities_of_a_prompt_are_told_once_whatever_dies(tmp_path: Path, max_tokens: int) -> None:
    async with running("dies-at 3 2", tmp_path / "count", step_tokens=9) as engine:
        asked = [
            TokenRequest(
                id=name,
                prompt=list(range(start, start + 40)),
                sampling=SamplingParams(),
                max_tokens=max_tokens,
                prompt_logprobs=2,
            )
            for name, start in (("a", 0), ("b", 50))
        ]
        streams = [await engine.submit(each) for each in asked]
        for request, stream in zip(asked, streams, strict=True):
            deltas = [delta async for delta in stream]
            assert [score for delta in deltas for score in delta.prompt_logprobs] == expected_scores(request)
            assert [token for delta in deltas for token in delta.tokens] == expected_output(request)[0]
        assert (await engine.stats()).restarts == 2


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
async def test_what_answers_questions_does_not_excuse_the_thread_that_steps() -> None:
    async with running("slow") as engine:
        await engine.stats()
        assert threads(engine.pid).count(ANSWERING) == 1


async def test_a_hung_step_is_a_crash(tmp_path: Path) -> None:
    async with running("hangs-at 4", tmp_path / "count", Supervision(step_deadline=3.0)) as engine:
        asking = asyncio.create_task(sixteen(engine))
        while not asking.done():  # answers to questions are no sign that steps go on
            with suppress(ApiError):
                await engine.stats()
            await asyncio.sleep(0.02)
        await asking
        assert (await engine.stats()).restarts == 1


async def test_a_long_step_that_gets_on_is_no_hang() -> None:
    async with running("crawls", supervision=Supervision(step_deadline=0.5)) as engine:
        asked = request("slow", 1, max_tokens=2)
        assert await read(await engine.submit(asked)) == expected_output(asked)
        assert (await engine.stats()).restarts == 0


@pytest.mark.parametrize("busy", [True, False])
async def test_a_stopped_process_is_a_crash(tmp_path: Path, busy: bool) -> None:
    async with gated(tmp_path / "count", 5, supervision=Supervision(step_deadline=3.0)) as (engine, gate):
        asking = asyncio.create_task(sixteen(engine))
        if busy:
            while (await engine.stats()).steps < 5:  # noqa: ASYNC110  (what is awaited is in another process)
                await asyncio.sleep(0.01)
            os.kill(engine.pid, signal.SIGSTOP)
        gate.open()
        await asking
        if not busy:
            os.kill(engine.pid, signal.SIGSTOP)
            await outage(engine, "no sign of life")
        stats = await recovered(engine)
        assert (stats.running, stats.restarts) == (0, 1)


async def test_an_idle_engine_may_be_silent() -> None:
    async with running("plain", supervision=Supervision(step_deadline=3.0)) as engine:
        await sixteen(engine)
        pid = engine.pid
        await asyncio.sleep(3.5)
        assert engine.pid == pid
        assert (await engine.stats()).restarts == 0


@pytest.mark.parametrize("behaviour", ["poison 0", "poison 7", "allergic"])
async def test_a_request_that_kills_the_engine_is_found_and_the_others_go_on(behaviour: str) -> None:
    async with running(behaviour) as engine:
        requests = [request(str(i), i) for i in range(6)]
        requests.insert(3, request("poison", 50))
        streams = [await engine.submit(each) for each in requests]
        answers = await asyncio.gather(*(read(stream) for stream in streams), return_exceptions=True)
        failure = answers.pop(3)
        assert isinstance(failure, ApiError)
        assert failure.status == 500
        assert "three times" in failure.message
        del requests[3]
        assert answers == [expected_output(each) for each in requests]
        assert (await engine.stats()).restarts == 3


async def test_requests_that_come_during_a_restart_wait_for_it(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", 1, max_sequences=2, max_waiting=1) as (engine, gate):
        streams = [await engine.submit(request("0", 0))]
        await anext(streams[0])
        os.kill(engine.pid, signal.SIGKILL)
        await outage(engine, "SIGKILL")
        streams += [await engine.submit(request(str(i), i)) for i in (1, 2)]
        with pytest.raises(ApiError, match="queue is full") as caught:
            await engine.submit(request("3", 3))
        assert caught.value.status == 429
        gate.open()
        answers = await asyncio.gather(*(read(stream) for stream in streams))
        assert answers[1:] == [expected_output(request(str(i), i)) for i in (1, 2)]


async def test_a_reader_that_leaves_during_a_restart_is_not_resumed(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", 1) as (engine, _):
        stream = await engine.submit(request("a", 1, max_tokens=200))
        await anext(stream)
        os.kill(engine.pid, signal.SIGKILL)
        await stream.aclose()
        stats = await recovered(engine)
        assert (stats.running, stats.waiting, stats.resumed) == (0, 0, 0)


@pytest.mark.parametrize("outcomes", ["rfr", "rdfr"])
async def test_failed_starts_are_tried_again(tmp_path: Path, outcomes: str) -> None:
    async with running(f"starts {outcomes}", tmp_path / "count") as engine:
        await engine.stats()
        os.kill(engine.pid, signal.SIGKILL)
        await sixteen(engine)
        assert not engine.lost.done()


async def test_between_failed_starts_requests_are_told_to_come_back(tmp_path: Path) -> None:
    slow = Supervision(first_delay=60, longest_delay=60)
    async with running("starts rf", tmp_path / "count", slow) as engine:
        await engine.stats()
        os.kill(engine.pid, signal.SIGKILL)
        await outage(engine, "1 starts in a row failed, the last: the model file is broken")
        with pytest.raises(ApiError, match="the model file is broken") as caught:
            await engine.submit(request("a", 1, 1))
        assert caught.value.status == 503
        assert caught.value.retry_after == 60


async def test_after_the_last_failed_start_everything_fails_with_the_reason(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", 1, "starts rf") as (engine, _):
        stream = await engine.submit(request("a", 1, max_tokens=200))
        await anext(stream)
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(ApiError, match="cannot be started again: the model file is broken") as caught:
            await read(stream)
        assert caught.value.status == 503
        assert "cannot be started again" in await engine.lost
        for call in (engine.stats(), engine.submit(request("b", 1))):
            with pytest.raises(ApiError, match="cannot be started again"):
                await call


async def test_closing_during_a_restart_ends_streams_and_process(tmp_path: Path) -> None:
    async with gated(tmp_path / "count", 1) as (engine, _):
        stream = await engine.submit(request("a", 1, max_tokens=200))
        await anext(stream)
        os.kill(engine.pid, signal.SIGKILL)
        await outage(engine, "SIGKILL")
    with pytest.raises(ApiError, match="stopped"):
        await read(stream)
    with pytest.raises(ProcessLookupError):
        os.kill(engine.pid, 0)
