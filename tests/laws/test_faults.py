"""A fault at each stage boundary has the right end on every surface, streamed and not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest

from millstream.engine.protocol import TokenDelta, TokenRequest
from millstream.engine.scripted import Pause, Step
from millstream.ir.errors import overloaded
from millstream.parsing.events import Event, Piece, Span
from millstream.pipeline import dialect
from support.conversation import PATHS, SURFACES, Played, body
from support.raw_client import RawClient
from support.scripted_model import EOS
from support.waiting import until

EVERYWHERE = pytest.mark.parametrize("surface", SURFACES)
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True])


class Failing:
    """A parser that fails at the third piece, or at the end."""

    def __init__(self, at_end: bool) -> None:
        self._at_end = at_end
        self._pieces = 0

    def feed(self, piece: Piece) -> list[Event]:
        self._pieces += 1
        if self._pieces == 3 and not self._at_end:
            raise KeyError("secret")
        return [Span(piece.text)]

    def finish(self) -> list[Event]:
        raise KeyError("secret")


def says(*steps: Step | str) -> Callable[[TokenRequest], Iterable[Step]]:
    """A plan: each text is a step."""
    return lambda request: [TokenDelta("", list(step.encode())) if isinstance(step, str) else step for step in steps]


def end(finish: Any) -> TokenDelta:
    return TokenDelta("", [EOS] if finish == "stop" else [], finish=finish, error="The engine died.")


@EVERYWHERE
@BOTH_WAYS
@pytest.mark.parametrize("at_end", [False, True])
async def test_a_parser_that_fails(surface: str, stream: bool, at_end: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "create_parser", lambda *args, **how: Failing(at_end))
    played = Played()
    played.plan = says("a", "b", "c", "d", end("stop"))
    seen = await played.ask(surface, stream=stream, tools=True)
    assert seen.finish == "error"
    assert "secret" not in (seen.error or "")
    assert "reading the model's output" in (seen.error or "")
    assert (await played.engine.stats()).running == 0
    if stream:
        assert seen.text == ("abcd" if at_end else "ab")


@EVERYWHERE
@BOTH_WAYS
@pytest.mark.parametrize("death", [RuntimeError("secret"), end("error"), None], ids=["raises", "tells", "stops"])
async def test_an_engine_that_dies_after_some_text(surface: str, stream: bool, death: Step | None) -> None:
    played = Played()
    played.plan = says("ab", "c", *([] if death is None else [death]))
    seen = await played.ask(surface, stream=stream)
    assert seen.finish == "error"
    assert "secret" not in (seen.error or "")
    assert seen.usage is None
    if stream:
        assert seen.text == "abc"


@EVERYWHERE
@BOTH_WAYS
async def test_an_engine_that_dies_before_the_first_token_is_a_status(surface: str, stream: bool) -> None:
    played = Played()
    played.plan = says(end("error"))
    answer = await played.post(surface, body(surface, stream=stream))
    assert answer.status_code == 503
    kind = {"messages": "overloaded_error"}.get(surface, "server_error")
    assert answer.json()["error"]["type"] == kind


@EVERYWHERE
@BOTH_WAYS
async def test_a_full_queue_says_when_to_come_back(surface: str, stream: bool) -> None:
    def plan(request: TokenRequest) -> list[Step]:
        raise overloaded("The queue is full.", retry_after=7)

    played = Played()
    played.plan = plan
    answer = await played.post(surface, body(surface, stream=stream))
    assert (answer.status_code, answer.headers["content-type"]) == (429, "application/json")
    assert int(answer.headers["retry-after"]) >= 7
    kind = {"messages": "rate_limit_error"}.get(surface, "rate_limit_exceeded")
    assert answer.json()["error"]["type"] == kind
    assert (answer.json().get("type") == "error") == (surface == "messages")


@EVERYWHERE
@BOTH_WAYS
async def test_a_template_with_a_fault_of_ours_is_a_500_in_the_right_envelope(
    surface: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **how: Any) -> Any:
        raise KeyError("secret")

    played = Played()
    monkeypatch.setattr(dialect.Dialect, "turn", broken)
    answer = await played.post(surface, body(surface, stream=stream))
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert (answer.json().get("type") == "error") == (surface == "messages")
    assert played.engine.requests == []


def raw(played: Played, surface: str, **fields: Any) -> RawClient:
    return RawClient(played.app, PATHS[surface], body(surface, **fields))


@EVERYWHERE
@BOTH_WAYS
@pytest.mark.parametrize("said", ["", "abc"], ids=["before the first token", "in the middle"])
async def test_a_client_that_leaves_frees_its_place(surface: str, stream: bool, said: str) -> None:
    played = Played()
    played.plan = says(*said, Pause(None))
    client = raw(played, surface, stream=stream, store=True)
    await until(lambda: played.engine.steps == len(said) and len(played.engine.requests) == 1, pause=0.001)
    client.leave()
    await asyncio.wait_for(client.task, 60)
    assert played.engine.aborted == [request.id for request in played.engine.requests]
    assert (await played.engine.stats()).running == 0
    if not stream:
        assert client.sent == []


@EVERYWHERE
@BOTH_WAYS
@pytest.mark.parametrize("ticks", range(6))
async def test_a_client_that_leaves_in_the_moment_its_request_is_taken_in(
    surface: str, stream: bool, ticks: int
) -> None:
    """Whatever the order in which its leaving and the engine's stream are seen, the stream is closed."""
    played = Played()
    played.plan = says("a", Pause(None))
    client = raw(played, surface, stream=stream)
    inner = played.provider.stream

    async def slow(request: Any) -> Any:
        stream = await inner(request)
        client.leave()
        for _ in range(ticks):
            with suppress(asyncio.CancelledError):  # it gives the stream even if it was cancelled meanwhile
                await asyncio.sleep(0)
        return stream

    played.provider.stream = slow  # type: ignore[method-assign]
    await asyncio.wait_for(client.task, 60)
    assert played.engine.aborted == [request.id for request in played.engine.requests]
    assert len(played.engine.requests) == 1


@EVERYWHERE
async def test_a_reader_that_stalls_pauses_its_own_answer_only(surface: str) -> None:
    played = Played()
    played.plan = lambda request: (TokenDelta("", [97]) for _ in range(5000))
    stalled = raw(played, surface, stream=True)
    await until(lambda: len(stalled.sent) > 3, pause=0)
    stalled.reads.clear()
    for _ in range(100):
        await asyncio.sleep(0)
    before = played.engine.steps
    played.plan = says("b", end("stop"))
    seen = await played.ask(surface, stream=True)
    assert (seen.text, seen.finish) == ("b", "stop")
    assert played.engine.steps - before < 70
    stalled.leave()
    stalled.reads.set()
    await asyncio.wait_for(stalled.task, 60)
    assert (await played.engine.stats()).running == 0
