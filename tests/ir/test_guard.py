"""Law 1: one end, whatever the source does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given

from millstream.ir.deltas import Content, Delta, Error, Finish, Refusal, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.ir.errors import ApiError, overloaded
from millstream.ir.guard import guard, problem_of
from support.scripted_model import run
from support.sources import Source, read
from support.strategies import orderly, sources

DONE = Finish("stop", Usage(1, 1))


def guarded(*items: Delta | BaseException, choices: int = 1) -> list[Delta]:
    return run(read(guard(Source(items), choices=choices)))


@given(sources(choices=3))
def test_any_source_ends_once(items: list[Delta | Exception]) -> None:
    source = Source(items)
    seen = run(read(guard(source, choices=3)))
    assert source.closed == 1
    finishes = [delta.choice for delta in seen if isinstance(delta, Finish)]
    assert len(set(finishes)) == len(finishes)
    errors = [delta for delta in seen if isinstance(delta, Error)]
    if errors:
        assert len(errors) == 1
        assert seen[-1] is errors[0]
    else:
        assert sorted(finishes) == [0, 1, 2]
        assert isinstance(seen[-1], Finish)
    assert [k for k, delta in enumerate(seen) if isinstance(delta, Start)] in ([], [0])
    closed: set[int] = set()
    for delta in seen:
        if not isinstance(delta, Start | Error):
            assert delta.choice not in closed
            assert 0 <= delta.choice < 3
        if isinstance(delta, Finish):
            closed.add(delta.choice)


@given(orderly(choices=2))
def test_an_orderly_source_passes_unchanged(items: list[Delta]) -> None:
    assert guarded(*items, choices=2) == items


def test_an_api_error_keeps_its_fields() -> None:
    error = overloaded("The queue is full.", retry_after=1)
    error.param = "n"
    expected = Error(
        "The queue is full.", type="rate_limit_exceeded", code="queue_full", status=429, param="n", retry_after=1
    )
    assert guarded(Content("a"), error) == [Content("a"), expected]
    assert vars(problem_of(expected)) == vars(error)


def test_other_exceptions_are_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    seen = guarded(Content("a"), ValueError("/secret/path"))
    assert isinstance(seen[-1], Error)
    assert "secret" not in seen[-1].message
    assert (seen[-1].type, seen[-1].status) == ("server_error", 500)
    assert "/secret/path" in caplog.text


def test_a_source_that_just_stops_is_an_error() -> None:
    seen = guarded(Content("a", 0), Finish("stop", Usage(), 0), choices=2)
    assert isinstance(seen[-1], Error)
    assert "without a result" in seen[-1].message


def test_a_refusal_waits_for_its_finish() -> None:
    seen = guarded(Refusal("no"), Content("a"), Refusal("again"), DONE)
    assert seen == [Content("a"), Refusal("no"), DONE]


def test_a_refusal_beside_a_call_is_dropped() -> None:
    call = ToolCallStart(0, "id", "name")
    assert guarded(Refusal("no"), call, DONE) == [call, DONE]


def test_late_and_second_starts_are_dropped() -> None:
    assert guarded(Start(3), Start(4), Content("a"), Start(5), DONE) == [Start(3), Content("a"), DONE]
    assert guarded(Content("a"), Start(5), DONE) == [Content("a"), DONE]


@pytest.mark.parametrize(
    "bad",
    [
        ToolCallArgs(0, "{}"),
        ToolCallStart(1, "id", "name"),
        Content("a", 1),
        Finish("stop", Usage(), -1),
        "no delta",
    ],
)
def test_broken_order_is_an_error(bad: Delta) -> None:
    seen = guarded(Content("a"), bad, DONE)
    assert seen[0] == Content("a")
    assert isinstance(seen[1], Error)
    assert len(seen) == 2


def test_aclose_closes_the_source_once_and_ends_the_stream() -> None:
    async def work() -> None:
        source = Source([Content("a"), Content("b"), DONE])
        stream = guard(source)
        assert await anext(stream) == Content("a")
        await stream.aclose()
        await stream.aclose()
        assert source.closed == 1
        assert await read(stream) == []

    run(work())


def test_cancellation_closes_the_source_and_propagates() -> None:
    class Stalled(Source):
        async def __anext__(self) -> Delta:
            if self.closed:
                raise StopAsyncIteration
            await asyncio.Event().wait()
            raise AssertionError

    async def work() -> None:
        source = Stalled([])
        stream = guard(source)
        task = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.closed == 1
        await stream.aclose()
        assert source.closed == 1
        assert await read(stream) == []

    run(work())


def test_aclose_while_another_task_waits_in_a_generator() -> None:
    async def work() -> None:
        go = asyncio.Event()
        closed: list[str] = []

        async def source() -> AsyncIterator[Delta]:
            try:
                await go.wait()
                yield Content("late")
                yield DONE
            finally:
                closed.append("source")

        stream = guard(source())
        task = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        go.set()
        assert await task == []
        assert closed == ["source"]

    run(work())


def test_a_source_that_fails_to_close_does_not_spoil_the_end(caplog: pytest.LogCaptureFixture) -> None:
    class Bad(Source):
        async def aclose(self) -> None:
            raise ApiError("no")

    assert run(read(guard(Bad([Content("a"), DONE])))) == [Content("a"), DONE]
    assert "failed to close" in caplog.text


def test_no_choices_make_no_stream() -> None:
    with pytest.raises(ValueError, match="at least one choice"):
        guard(Source([]), choices=0)
