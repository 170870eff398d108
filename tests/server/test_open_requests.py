"""Every request that generates is seen while it is open, and leaves, however it ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.protocol import EngineStats, SequenceView
from millstream.ir.deltas import Content, Error, Finish, Reasoning, Start, Usage
from millstream.ir.errors import ApiError, invalid
from millstream.ir.provider import Embeddings
from millstream.server.admin.entry import Entry, clock
from millstream.server.admin.facts import Facts
from millstream.server.admin.registry import ENDED_KEPT, Requests
from millstream.server.app import create_app
from support.provider import ScriptedProvider, Step

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "a", "n": 2},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
    "/v1/embeddings": {"input": ["a", "b"]},
}


class Provider(ScriptedProvider):
    """``embeds``: what `embed` does: an exception, or seconds that it takes."""

    embeds: float | Exception = 0.0

    async def embed(self, request: Any) -> Embeddings:
        self.requests.append(request)
        if isinstance(self.embeds, Exception):
            raise self.embeds
        await asyncio.sleep(self.embeds)
        return Embeddings(vectors=[bytes(8) for _ in request.inputs], prompt_tokens=3)


async def stats() -> EngineStats:
    return EngineStats()


class Asked:
    """A request to an app in this loop, whose client may leave."""

    def __init__(self, app: Any, path: str, *, stream: bool = False, **fields: Any) -> None:
        body = {"model": "tiny", **BODIES[path], **fields}
        if stream:
            body["stream"] = True
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
        self.status = 0
        self.body = b""
        self.pieces = 0
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": []}
        scope |= {"query_string": b"", "http_version": "1.1", "root_path": "", "scheme": "http"}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        message = await self._inbox.get()
        if message["type"] == "http.disconnect":  # who has left stays away
            self._inbox.put_nowait(message)
        return message

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
        self.pieces += 1

    def leave(self) -> None:
        self._inbox.put_nowait({"type": "http.disconnect"})

    async def end(self) -> None:
        await asyncio.wait_for(self.task, 60)


def requests_of(app: Any) -> Requests:
    found: Requests = app.state.requests
    return found


async def until_open(app: Any, count: int = 1) -> None:
    async with asyncio.timeout(60):
        while len(requests_of(app)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)


def last_end(app: Any) -> tuple[str | None, str]:
    entry = requests_of(app)._ended[-1]
    assert entry.timeline[-1].kind == entry.end
    return entry.end, entry.timeline[-1].note


def hello(request: Any) -> list[Step]:
    choices = range(request.choices)
    return [
        Start(5, 2),
        *(Content("Hi", choice) for choice in choices),
        *(Finish("stop", Usage(5, 3, 2), choice) for choice in choices),
    ]


@pytest.mark.parametrize("path", BODIES)
async def test_a_finished_request(path: str) -> None:
    app = create_app(Provider(hello), stats)
    asked = Asked(app, path)
    await asked.end()
    assert asked.status == 200
    assert len(requests_of(app)) == 0
    (entry,) = requests_of(app)._ended
    view = entry.view()
    assert (view.surface, view.model, entry.end) == (entry.facts.surface, "tiny", "finished")
    if path == "/v1/embeddings":
        assert (view.prompt_tokens, view.completion_tokens, view.choices) == (3, 0, 2)
        return
    assert last_end(app) == ("finished", "stop")
    choices = 2 if path == "/v1/completions" else 1
    assert (view.choices, view.prompt_tokens, view.cached_tokens, view.completion_tokens) == (
        choices,
        5,
        2,
        3 * choices,
    )
    assert [event.kind for event in entry.timeline] == ["received", "prefill", "first_token", "finished"]
    assert [event.seconds for event in entry.timeline] == sorted(event.seconds for event in entry.timeline)
    assert entry.said() == []


ENDS: dict[str, list[Step]] = {
    "finish": [Finish("length", Usage(5, 2))],
    "error": [Error("broken", code="engine_error", status=503)],
    "refusal": [invalid("No.", code="no_good")],
    "crash": [ValueError("secret")],
    "silence": [3600.0],
    "nothing": [],
}
GENERATING = [path for path in BODIES if path not in ("/v1/completions", "/v1/embeddings")]


@settings(max_examples=40)
@given(
    path=st.sampled_from(GENERATING),
    stream=st.booleans(),
    begin=st.sampled_from([[], [Start(5)], [Start(5), Reasoning("hm"), Content("Hel")]]),
    end=st.sampled_from(list(ENDS)),
    by=st.sampled_from(["itself", "client", "operator", "server", "operator and client"]),
    turns=st.integers(0, 12),
)
async def test_every_request_leaves_once(
    path: str, stream: bool, begin: list[Step], end: str, by: str, turns: int
) -> None:
    if end == "silence" and by == "itself":
        by = "client"
    app = create_app(Provider(lambda request: [*begin, *ENDS[end]]), stats)
    told: list[str] = []
    requests_of(app).listeners.append(lambda entry: told.append(entry.facts.id))
    asked = Asked(app, path, stream=stream)
    for _ in range(turns):
        await asyncio.sleep(0)
    here = list(requests_of(app))
    if "operator" in by:
        for entry in here:
            await requests_of(app).cancel(entry)
    if "client" in by:
        asked.leave()
    if by == "server":
        app.state.lifecycle.drain()
        app.state.lifecycle.cancel_open()
    if end == "silence" and by == "operator" and not here:
        asked.leave()  # it came after the operator had looked
    await asked.end()
    assert len(requests_of(app)) == 0
    assert len(told) == len(set(told)) == len(requests_of(app)._ended)
    if here and by == "operator":
        assert last_end(app) == ("cancelled", "by the operator")
    elif end == "finish" and by == "itself":
        assert last_end(app) == ("finished", "length")
    elif by == "itself":
        code = {"error": "engine_error", "refusal": "no_good"}.get(end, "500")
        assert last_end(app) == ("failed", code)
    elif end == "silence" and here:
        assert last_end(app)[0] == "cancelled"


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("begin", [[], [Content("Hel")]])
async def test_the_client_is_told_of_an_operator_s_cancel(path: str, stream: bool, begin: list[Step]) -> None:
    provider = Provider(lambda request: [Start(5), *begin, 3600.0])
    app = create_app(provider, stats)
    asked = Asked(app, path, stream=stream)
    await until_open(app)
    for _ in range(20):
        await asyncio.sleep(0)
    (entry,) = requests_of(app)
    await requests_of(app).cancel(entry)
    await asked.end()
    assert asked.status == (200 if stream and begin else 403)
    assert b"The operator of this server ended the request." in asked.body
    if path == GENERATING[0] or (path == "/v1/responses" and asked.status == 403):  # others have codes of their own
        assert b"cancelled_by_operator" in asked.body
    assert provider.closed == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_request_that_is_still_taken_in_can_be_cancelled(path: str) -> None:
    class Opening(Provider):
        embeds = 3600.0

        async def stream(self, request: Any) -> Any:
            await asyncio.sleep(3600)

    app = create_app(Opening(), stats)
    asked = Asked(app, path)
    await until_open(app)
    await asyncio.sleep(0)
    (entry,) = requests_of(app)
    await requests_of(app).cancel(entry)
    await asked.end()
    assert (asked.status, json.loads(asked.body)["error"]["code"]) == (403, "cancelled_by_operator")


@pytest.mark.parametrize(
    ("problem", "note"),
    [(invalid("No.", code="bad"), "bad"), (ApiError("No.", status=429), "429"), (ValueError("x"), "internal_error")],
)
async def test_refused_embeddings_leave(problem: Exception, note: str) -> None:
    provider = Provider()
    provider.embeds = problem
    app = create_app(provider, stats)
    await Asked(app, "/v1/embeddings").end()
    assert last_end(app) == ("failed", note)


async def test_the_last_that_ended_are_remembered_by_ids_of_their_own() -> None:
    app = create_app(Provider(hello), stats)
    requests = requests_of(app)
    for _ in range(ENDED_KEPT + 5):
        await Asked(app, "/v1/chat/completions").end()
    assert len(requests._ended) == ENDED_KEPT
    names = [entry.facts.id for entry in requests._ended]
    assert len(set(names)) == ENDED_KEPT
    assert all(requests.find(name) is not None for name in names)


async def test_what_was_asked_is_told_without_its_text() -> None:
    app = create_app(Provider(hello), stats)
    fields = {"temperature": 0, "seed": 7, "stop": ["secret"], "logit_bias": {"1": 5}, "priority": -2, "max_tokens": 4}
    await Asked(app, "/v1/chat/completions", **fields).end()
    (entry,) = requests_of(app)._ended
    detail = entry.detail()
    assert detail.parameters == {
        "messages": "1",
        "temperature": "0.0",
        "seed": "7",
        "stop": "1",
        "logit_bias": "1",
        "max_tokens": "4",
        "priority": "-2",
    }
    assert detail.request.priority == -2


def test_how_far_a_prompt_is() -> None:
    entry = Entry(Facts(id="asked", handle="asked", surface="messages", model="tiny"), 0, clock())
    assert entry.view().prompt_done == 0
    start = Start(100, 20)
    entry.usage.feed(start)
    entry.begin_prefill(start, clock())
    entry.compare([SequenceView("asked", "prefill", None, 64), SequenceView("asked/1", "queued")], restarted=False)
    assert (entry.view().prompt_tokens, entry.view().prompt_done) == (100, 64)
    entry.begin_decode(clock())
    entry.compare([SequenceView("asked", "queued", "kv_cache", 0)], restarted=False)
    assert entry.view().prompt_done == 100
