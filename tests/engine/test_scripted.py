from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from millstream.engine.protocol import SamplingParams, SequenceView, TokenDelta, TokenRequest, TokenStream
from millstream.engine.scripted import Pause, ScriptedEngine, Step, script
from millstream.ir.errors import ApiError, overloaded
from support.scripted_model import alternatives, engine, info, run


def request(**how: object) -> TokenRequest:
    return TokenRequest(**{"id": "r", "prompt": [1], "sampling": SamplingParams(), "max_tokens": 10, **how})  # type: ignore[arg-type]


async def read(stream: TokenStream) -> list[TokenDelta]:
    return [delta async for delta in stream]


def test_cuts_are_the_steps() -> None:
    steps = script(request(), [1, 2, 3, 4], cuts=[1, 3], cached_tokens=2)
    assert [step.tokens for step in steps] == [[1], [2, 3], [4]]
    assert [step.finish for step in steps] == [None, None, "stop"]
    assert {step.cached_tokens for step in steps} == {2}
    assert [step.tokens for step in script(request(), [1, 2])] == [[1], [2]]
    assert script(request(), []) == [TokenDelta("r", finish="stop")]


def test_a_script_obeys_the_request() -> None:
    (step,) = script(request(stop_ids=(7,), min_tokens=2), [7, 7, 7, 8], cuts=())
    assert (step.tokens, step.finish) == ([7, 7, 7], "stop")
    (step,) = script(request(max_tokens=2), [1, 2, 3], cuts=())
    assert (step.tokens, step.finish) == ([1, 2], "length")
    asked = request(sampling=SamplingParams(logprobs=1))
    assert [len(step.logprobs) for step in script(asked, [1, 2], alternatives=alternatives)] == [1, 1]
    assert [len(step.logprobs) for step in script(request(), [1, 2], alternatives=alternatives)] == [0, 0]


def test_it_plays_and_counts() -> None:
    async def work() -> None:
        playing = engine([1, 2, 3], cuts=[2])
        stream = await playing.submit(request())
        assert (await playing.stats()).running == 1
        assert [delta.tokens for delta in await read(stream)] == [[1, 2], [3]]
        stats = await playing.stats()
        assert (stats.running, stats.steps, stats.generated_tokens) == (0, 2, 3)
        await stream.aclose()
        assert playing.aborted == []

    run(work())


def test_failures_pauses_and_refusals() -> None:
    def plan(request: TokenRequest) -> Iterable[Step]:
        if request.id == "refused":
            raise overloaded("full", retry_after=1)
        return [TokenDelta("", [1]), Pause(), Pause(0.001), ValueError("broken")]

    async def work() -> None:
        playing = ScriptedEngine(plan, info=info())
        with pytest.raises(ApiError, match="full"):
            await playing.submit(request(id="refused"))
        stream = await playing.submit(request())
        assert await anext(stream) == TokenDelta("r", [1])
        with pytest.raises(ValueError, match="broken"):
            await anext(stream)
        assert await read(stream) == []
        assert [asked.id for asked in playing.requests] == ["r"]

    run(work())


def test_aborting_wakes_the_reader_and_closing_aborts_all() -> None:
    async def work() -> None:
        playing = ScriptedEngine(lambda _: [Pause(None)], info=info())
        streams = [await playing.submit(request(id=name)) for name in "ab"]
        readers = [asyncio.create_task(read(stream)) for stream in streams]
        await asyncio.sleep(0)
        await streams[1].aclose()
        assert await readers[1] == []
        await playing.close()
        await playing.close()
        assert await readers[0] == []
        assert playing.aborted == ["b", "a"]
        with pytest.raises(ApiError, match="closed"):
            await playing.submit(request())

    run(work())


def test_an_operator_holds_releases_and_reorders() -> None:
    async def work() -> None:
        playing = engine([1, 2, 3])
        stream = await playing.submit(request(priority=2))
        assert await playing.sequences() == [SequenceView("r", "prefill")]
        await anext(stream)
        assert await playing.sequences() == [SequenceView("r", "decode", None, 1, 1)]
        assert playing.hold("r")
        rest = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        assert await playing.sequences() == [SequenceView("r", "paused", "held", 1, 1)]
        assert playing.reprioritise("r", -3)
        assert playing.priorities == {"r": -3}
        assert not rest.done()
        assert playing.release("r")
        assert [delta.tokens for delta in await rest] == [[2], [3]]
        assert await playing.sequences() == []
        assert [playing.hold("r"), playing.release("r"), playing.reprioritise("r", 0)] == [False] * 3

    run(work())


def test_a_held_sequence_that_is_aborted_wakes_its_reader() -> None:
    async def work() -> None:
        playing = engine([1, 2, 3])
        stream = await playing.submit(request())
        playing.hold("r")
        reader = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        assert await reader == []
        assert playing.aborted == ["r"]

    run(work())
