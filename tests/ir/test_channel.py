from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.channel import ChannelClosed, channel, merge
from millstream.ir.deltas import Content, Delta, Error, Finish, Start, Usage
from millstream.ir.errors import ApiError
from millstream.ir.fold import fold
from millstream.ir.guard import guard
from support.scripted_model import run
from support.sources import Source, read
from support.strategies import orderly

DONE = Finish("stop", Usage(1, 1))


@given(orderly(choices=2), st.integers(1, 4))
def test_what_is_sent_is_read(items: list[Delta], capacity: int) -> None:
    async def work() -> list[Delta]:
        sender, stream = channel(capacity, choices=2)

        async def produce() -> None:
            with sender:
                for delta in items:
                    await sender.send(delta)

        task = asyncio.create_task(produce())
        seen = await read(stream)
        await asyncio.gather(task, return_exceptions=True)
        return seen

    assert run(work()) == items


def test_a_full_channel_makes_the_producer_wait() -> None:
    async def work() -> None:
        sender, stream = channel(2)
        assert sender.try_send(Content("a"))
        assert sender.try_send(Content("b"))
        assert not sender.try_send(Content("c"))
        waiting = asyncio.create_task(sender.send(Content("c")))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert await anext(stream) == Content("a")
        await waiting
        assert not sender.try_send(Content("d"))
        assert await anext(stream) == Content("b")
        assert sender.try_send(DONE)
        assert await read(stream) == [Content("c"), DONE]

    run(work())


def test_closing_without_a_finish_is_an_error() -> None:
    async def work() -> list[Delta]:
        sender, stream = channel(4)
        await sender.send(Content("a"))
        sender.close()
        with pytest.raises(ChannelClosed):
            await sender.send(DONE)
        return await read(stream)

    seen = run(work())
    assert seen[0] == Content("a")
    assert isinstance(seen[1], Error)


def test_a_reader_that_leaves_tells_the_sender() -> None:
    async def work() -> None:
        sender, stream = channel(1)
        await sender.send(Content("a"))
        waiting = [asyncio.create_task(sender.send(Content("b"))) for _ in range(3)]
        await asyncio.sleep(0)
        await stream.aclose()
        assert sender.closed
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, ChannelClosed) for result in results)
        with pytest.raises(ChannelClosed):
            sender.try_send(DONE)

    run(work())


def test_aclose_wakes_a_waiting_reader() -> None:
    async def work() -> None:
        _, stream = channel(1)
        task = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        assert await task == []

    run(work())


def test_a_cancelled_sender_passes_its_turn_on() -> None:
    async def work() -> None:
        sender, stream = channel(1)
        await sender.send(Content("a"))
        first = asyncio.create_task(sender.send(Content("lost")))
        second = asyncio.create_task(sender.send(Content("b")))
        await asyncio.sleep(0)
        assert await anext(stream) == Content("a")  # gives the turn to `first`, which never takes it
        first.cancel()
        await asyncio.wait_for(second, 60)
        assert first.cancelled()
        assert await anext(stream) == Content("b")
        await stream.aclose()

    run(work())


def test_a_channel_holds_something() -> None:
    with pytest.raises(ValueError, match="at least one"):
        channel(0)


@given(st.lists(st.lists(st.text("ab", max_size=2), max_size=5), min_size=1, max_size=4), st.integers(1, 3))
def test_merge_keeps_every_choice(texts: list[list[str]], capacity: int) -> None:
    sources = [
        [Start(4), *(Content(text, k) for text in mine), Finish("stop", Usage(4, len(mine)), k)]
        for k, mine in enumerate(texts)
    ]

    async def work() -> list[Delta]:
        return await read(merge([Source(items) for items in sources], capacity=capacity))

    seen = run(work())
    assert [delta for delta in seen if isinstance(delta, Start)] == [Start(4)]
    assert [choice.text for choice in fold(seen).choices] == ["".join(mine) for mine in texts]
    assert fold(seen).usage == Usage(4, sum(map(len, texts)))


@pytest.mark.parametrize("failure", [ApiError("no", status=503), ValueError("secret")])
def test_one_failing_source_ends_the_merge_and_closes_the_others(failure: Exception) -> None:
    async def work() -> None:
        sources = [Source([Content("a", 0), failure]), Source(Content("b", 1) for _ in range(10**9))]
        seen = await read(merge(sources, capacity=2))
        assert isinstance(seen[-1], Error)
        assert "secret" not in seen[-1].message
        assert [source.closed for source in sources] == [1, 1]

    run(work())


def test_closing_a_merge_closes_every_source() -> None:
    async def work() -> None:
        senders_and_streams = [channel(1) for _ in range(3)]
        merged = merge([stream for _, stream in senders_and_streams])
        task = asyncio.create_task(read(merged))
        await asyncio.sleep(0)
        await merged.aclose()
        assert await task == []
        assert all(sender.closed for sender, _ in senders_and_streams)

    run(work())


def test_a_merge_of_guarded_streams_ends_when_one_stops_short() -> None:
    async def work() -> list[Delta]:
        return await read(merge([guard(Source([Content("a")])), guard(Source([DONE]))]))

    assert isinstance(run(work())[-1], Error)


def test_a_merge_whose_closing_is_cancelled_still_closes_every_source() -> None:
    async def work() -> None:
        ends = [channel(1) for _ in range(2)]
        merged = merge([stream for _, stream in ends])
        await asyncio.sleep(0)
        closing = asyncio.create_task(merged.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert all(sender.closed for sender, _ in ends)

    run(work())
