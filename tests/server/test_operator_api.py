"""`/v1/events` and `/v1/admin` on a live server: what an operator sees, and what the commands do."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
import msgspec
import pytest
from starlette.routing import Route

from millstream import __version__
from millstream.admin.views import LogLine, RequestDetail, RequestView, Snapshot
from millstream.engine.protocol import EngineInfo, EngineStats, TokenDelta, TokenRequest
from millstream.engine.scripted import Pause, Step
from millstream.ir.deltas import Content, Finish, Start, Usage
from millstream.server.admin.side import Operator
from millstream.server.admin.snapshots import Snapshots
from millstream.server.app import create_app
from millstream.server.telemetry.logs import LogRing
from support.conversation import Played, body
from support.live import Live, serving
from support.provider import ScriptedProvider
from support.readers import read
from support.scripted_model import EOS
from support.waiting import wait_until

CHAT = "/v1/chat/completions"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "the secret of the prompt"}]}
ADMIN = "/v1/admin/requests"


class Stream:
    """A streamed chat in a thread: ``id`` is that of its request; ``text``: what came."""

    def __init__(self, live: Live, wire: dict[str, Any], path: str = CHAT, request_id: str = "asked/1") -> None:
        self.id = request_id
        self.status = 0
        self.text = b""
        self._live = live
        self._wire = wire
        self._path = path
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        headers = {"x-request-id": self.id}
        with (
            self._live.client() as client,
            client.stream("POST", self._path, json={**self._wire, "stream": True}, headers=headers) as answer,
        ):
            self.status = answer.status_code
            for part in answer.iter_raw():
                self.text += part

    def end(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


def events(answer: httpx.Response) -> Iterator[tuple[str, bytes]]:
    """Kinds and data of server-sent events."""
    kind = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            yield kind, line[6:].encode()


def view_of(client: httpx.Client, name: str) -> RequestView | None:
    listed = msgspec.json.decode(client.get(ADMIN).content, type=dict[str, list[RequestView]])["data"]
    return next((view for view in listed if view.id == name), None)


def detail_of(client: httpx.Client, name: str) -> RequestDetail:
    return msgspec.json.decode(client.get(f"{ADMIN}/{name}").content, type=RequestDetail)


def moving(coming: Iterator[tuple[str, bytes]]) -> Snapshot:
    """The next snapshot in which tokens were made: one may have been under way."""
    for _, data in islice(coming, 20):
        snapshot = msgspec.json.decode(data, type=Snapshot)
        if snapshot.decode_tokens_per_second > 0:
            return snapshot
    raise AssertionError("no tokens are told of")


def test_snapshots_are_streamed() -> None:
    info = EngineInfo("tiny", 2048, 512, 4096, 32, "avx2", 2)
    with serving(info=info) as live, live.client() as client:
        client.post(CHAT, json=BODY)
        with client.stream("GET", "/v1/events?interval=0.2") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            coming = events(answer)
            kind, data = next(coming)
            first = msgspec.json.decode(data, type=Snapshot, strict=True)
            live.engine.answer = EngineStats(running=2, generated_tokens=1000, prompt_tokens=100, cached_tokens=50)
            second = moving(coming)
            live.engine.answer = EngineStats(generated_tokens=1500, prompt_tokens=200, cached_tokens=125)
            third = moving(coming)
        assert kind == "snapshot"
        assert (first.status, first.version, first.open_requests) == ("ready", __version__, 0)
        (engine,) = first.engines
        assert (engine.model, engine.isa, engine.threads, engine.running, engine.waits) == (
            "tiny",
            "avx2",
            2,
            1,
            {"kv_cache": 2},
        )
        assert engine.resident_bytes > 0
        assert first.first_token.p50 is not None
        assert 0 < first.first_token.p50 <= first.first_token.p99
        assert [(model.name, model.state, model.default) for model in first.models] == [("tiny", "loaded", True)]
        assert first.keys == []
        assert second.decode_tokens_per_second > 0
        assert third.decode_tokens_per_second > 0
        assert third.engines[0].prefix_hit_ratio is not None


def test_once_is_json_and_bad_parameters_are_refused() -> None:
    with serving() as live, live.client() as client:
        answer = client.get("/v1/events?once=true")
        assert answer.headers["content-type"] == "application/json"
        assert msgspec.json.decode(answer.content, type=Snapshot).status == "ready"
        for query, param in (("interval=0.1", "interval"), ("interval=x", "interval"), ("once=maybe", "once")):
            refused = client.get(f"/v1/events?{query}")
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        live.engine.answer = 3600.0


async def test_watchers_share_a_computation() -> None:
    asked = 0

    async def stats() -> EngineStats:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        return EngineStats()

    app = create_app(ScriptedProvider(), stats)
    (route,) = [route for route in app.routes if isinstance(route, Route) and route.path == "/v1/events"]
    snapshots: Snapshots = route.endpoint.__self__._snapshots  # type: ignore[attr-defined]
    taken = await asyncio.gather(*(snapshots.fresh(60.0) for _ in range(8)))
    assert asked == 1
    assert all(each is taken[0] for each in taken)
    assert await snapshots.fresh(60.0) is taken[0]
    leaving = asyncio.ensure_future(snapshots.fresh(0.0))
    staying = asyncio.ensure_future(snapshots.fresh(0.0))
    await asyncio.sleep(0)
    leaving.cancel()  # takes nothing from the others
    assert await staying is not taken[0]
    assert asked == 2


def test_a_server_that_stops_does_not_wait_for_watchers() -> None:
    with (
        serving(drain_seconds=60) as live,
        live.client() as client,
        client.stream("GET", "/v1/events?interval=60") as answer,
    ):
        coming = events(answer)
        next(coming)
        assert live.app.state.lifecycle.open_requests == 0
        live.stop()
        live.join()
        assert list(coming) == []


def test_the_life_of_a_request() -> None:
    go_on = threading.Event()

    def script(request: Any) -> Iterator[Any]:
        yield Start(5, 2)
        yield Content("Hel")
        while not go_on.is_set():
            yield 0.01
        yield Content("lo")
        yield Finish("stop", Usage(5, 3, 2))

    with serving(ScriptedProvider(script)) as live, live.client() as client:
        stream = Stream(live, {**BODY, "temperature": 0.5})
        view = wait_until(lambda: (found := view_of(client, stream.id)) and found.state == "decode" and found)
        assert (view.surface, view.model, view.streamed, view.prompt_tokens) == ("chat_completions", "tiny", True, 5)
        assert (view.cached_tokens, view.completion_tokens) == (2, 1)
        assert view.first_token_seconds is not None
        again = Stream(live, BODY)  # the same id
        wait_until(lambda: view_of(client, "asked/1~2"))
        go_on.set()
        stream.end()
        again.end()
        detail = wait_until(lambda: (found := detail_of(client, stream.id)).timeline[-1].kind == "finished" and found)
        assert [event.kind for event in detail.timeline] == ["received", "prefill", "first_token", "finished"]
        assert detail.parameters == {"messages": "1", "temperature": "0.5"}
        assert (detail.request.state, detail.request.completion_tokens) == ("ended", 3)
        assert "secret" not in client.get(f"{ADMIN}/{stream.id}").text
        for method, path, status, code in (
            ("GET", f"{ADMIN}/nobody", 404, "request_not_found"),
            ("POST", f"{ADMIN}/nobody/cancel", 404, "request_not_found"),
            ("POST", f"{ADMIN}/{stream.id}/cancel", 409, "request_ended"),
            ("GET", f"{ADMIN}/{stream.id}/wire", 409, "request_ended"),
        ):
            answer = client.request(method, path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_cancel() -> None:
    with serving(ScriptedProvider(lambda request: [Content("a"), 3600.0])) as live, live.client() as client:
        stream = Stream(live, BODY)
        wait_until(lambda: stream.text)
        assert client.post(f"{ADMIN}/{stream.id}/cancel").status_code == 204
        stream.end()
        assert b'"cancelled_by_operator"' in stream.text
        assert stream.text.endswith(b"data: [DONE]\n\n")
        detail = detail_of(client, stream.id)
        assert (detail.request.state, detail.timeline[-1].kind) == ("ended", "cancelled")
        name = 'millstream_requests_total{outcome="cancelled",surface="chat_completions"} 1.0'
        assert name in client.get("/metrics").text


def test_a_cancel_is_taken_while_the_server_drains() -> None:
    provider = ScriptedProvider(lambda request: [Content("a"), 3600.0])
    with serving(provider, drain_seconds=60) as live, live.client() as client:
        stream = Stream(live, BODY)
        wait_until(lambda: stream.text)
        client.get("/health")  # a connection that is there already
        live.stop()
        wait_until(lambda: client.get("/ready").json()["status"] == "draining")
        assert client.post(f"{ADMIN}/{stream.id}/cancel").status_code == 204
        stream.end()
        live.join()


class Letters:
    """A plan for a scripted engine that writes letter by letter, as many as it is allowed to."""

    def __init__(self, letters: str, allowed: int) -> None:
        self._letters = letters
        self.allowed = allowed

    def __call__(self, request: TokenRequest) -> Iterator[Step]:
        for at, letter in enumerate(self._letters):
            while at >= self.allowed:
                yield Pause(0.01)
            yield TokenDelta("", [ord(letter)])
        yield TokenDelta("", [EOS], finish="stop")


@contextmanager
def playing(letters: Letters) -> Iterator[tuple[Played, Live]]:
    """A server on a local provider, whose scripted engine writes letters."""
    played = Played()
    played.plan = letters
    with serving(played.provider, keep_alive_seconds=0.05) as live:
        yield played, live


def test_pause_resume_and_priority() -> None:
    letters = Letters("abcdefgh" * 20, allowed=3)
    with playing(letters) as (played, live), live.client() as client:
        stream = Stream(live, body("chat", max_tokens=1000))
        wait_until(lambda: b'"c"' in stream.text)
        assert client.post(f"{ADMIN}/{stream.id}/pause").status_code == 204
        view = view_of(client, stream.id)
        assert view is not None
        assert (view.state, view.wait_reason, view.held) == ("paused", "held", True)
        letters.allowed = 1000
        silent = stream.text.count(b": keep-alive\n\n")
        wait_until(lambda: stream.text.count(b": keep-alive\n\n") >= silent + 2)
        assert re.findall(rb'"content":"([a-z])"', stream.text) == [b"a", b"b", b"c"]
        for priority, status in ((7, 204), (101, 400), ("x", 400), (True, 400)):
            answer = client.post(f"{ADMIN}/{stream.id}/priority", json={"priority": priority})
            assert answer.status_code == status
        assert list(played.engine.priorities.values()) == [7]
        assert client.post(f"{ADMIN}/{stream.id}/resume").status_code == 204
        stream.end()
        assert read("chat", 200, stream.text, stream=True).text == "abcdefgh" * 20
        detail = detail_of(client, stream.id)
        kinds = [event.kind for event in detail.timeline]
        assert kinds == ["received", "prefill", "first_token", "paused", "priority", "resumed", "finished"]
        assert detail.request.priority == 7


def test_a_paused_request_that_is_cancelled_is_paused_no_more() -> None:
    with playing(Letters("abc" * 20, allowed=3)) as (_, live), live.client() as client:
        stream = Stream(live, body("chat", max_tokens=1000))
        wait_until(lambda: b'"c"' in stream.text)
        for verb in ("pause", "cancel"):
            assert client.post(f"{ADMIN}/{stream.id}/{verb}").status_code == 204
        stream.end()
        request = detail_of(client, stream.id).request
        assert (request.state, request.wait_reason, request.held) == ("ended", None, False)


def test_what_cannot_be_paused_is_said() -> None:
    with serving(ScriptedProvider(lambda request: [Content("a"), 3600.0])) as live, live.client() as client:
        stream = Stream(live, BODY)
        wait_until(lambda: stream.text)
        answer = client.post(f"{ADMIN}/{stream.id}/pause")
        assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_supported")
        client.post(f"{ADMIN}/{stream.id}/cancel")
        stream.end()


ANSWER = '<think>Let me see.</think>Sure.<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'


@pytest.mark.parametrize("asked", ["chat", "responses", "messages"])
def test_the_wire_view_tells_what_the_client_is_told(asked: str) -> None:
    """On every surface, for those who look from the beginning and for those who come later."""
    paths = {"chat": CHAT, "responses": "/v1/responses", "messages": "/v1/messages"}
    letters = Letters(ANSWER, allowed=0)
    with playing(letters) as (_, live), live.client() as client:
        stream = Stream(live, body(asked, max_tokens=1000, tools=True), path=paths[asked])
        seen: dict[str, bytes] = {}

        def watch(surface: str) -> None:
            with (
                live.client() as watching,
                watching.stream("GET", f"{ADMIN}/{stream.id}/wire?surface={surface}") as answer,
            ):
                seen[surface] = b""
                seen[surface] = answer.read()

        wait_until(lambda: view_of(client, stream.id))
        watchers = {surface: threading.Thread(target=watch, args=(surface,)) for surface in paths}
        for number, (surface, watcher) in enumerate(watchers.items()):
            letters.allowed = len(ANSWER) * number // 3
            wait_until(lambda: (found := view_of(client, stream.id)) and found.completion_tokens >= letters.allowed)
            watcher.start()
            wait_until(lambda surface=surface: surface in seen)  # type: ignore[misc]
        refused = client.get(f"{ADMIN}/{stream.id}/wire?surface=smoke")
        assert refused.json()["error"]["param"] == "surface"
        letters.allowed = len(ANSWER)
        stream.end()
        for watcher in watchers.values():
            watcher.join(60)
    told = read(asked, 200, stream.text, stream=True)
    assert told.calls
    for surface in paths:
        view = read(surface, 200, seen[surface], stream=True)
        assert (view.text, view.reasoning, view.calls) == (told.text, told.reasoning, told.calls)
        assert view.finish == told.finish


def test_a_wire_view_is_had_by_the_name_of_the_list_too() -> None:
    with serving(ScriptedProvider(lambda request: [Content("a"), 3600.0])) as live, live.client() as client:
        stream = Stream(live, BODY)
        wait_until(lambda: stream.text)
        view = view_of(client, stream.id)
        assert view is not None
        with client.stream("GET", f"{ADMIN}/{stream.id}/wire?surface={view.surface}") as answer:
            assert answer.status_code == 200
            client.post(f"{ADMIN}/{stream.id}/cancel")
            assert b"chat.completion.chunk" in answer.read()
        stream.end()


def test_a_wire_view_ends_with_its_request() -> None:
    with serving(ScriptedProvider(lambda request: [Content("a"), 3600.0])) as live, live.client() as client:
        stream = Stream(live, BODY)
        wait_until(lambda: stream.text)
        with client.stream("GET", f"{ADMIN}/{stream.id}/wire") as answer:
            parts = answer.iter_raw()
            raw = next(parts)
            with live.client() as other:
                other.post(f"{ADMIN}/{stream.id}/cancel")
            raw += b"".join(parts)
        assert b'"content":"a"' in raw
        assert b"cancelled_by_operator" in raw
        assert raw.endswith(b"data: [DONE]\n\n")
        stream.end()


def test_logs() -> None:
    ring = LogRing(50)
    logger = logging.getLogger("millstream.test_logs")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(ring)
    logger.propagate = False
    for number in range(70):
        logger.log(logging.WARNING if number % 2 else logging.INFO, "line %d", number)
    with serving(operator=Operator(logs=ring)) as live, live.client() as client:
        for query, param in (("level=loud", "level"), ("lines=-1", "lines"), ("lines=9999", "lines")):
            assert client.get(f"/v1/admin/logs?{query}").json()["error"]["param"] == param
        with client.stream("GET", "/v1/admin/logs?level=warning&lines=5") as answer:
            coming = events(answer)
            lines = [msgspec.json.decode(next(coming)[1], type=LogLine) for _ in range(5)]
            assert [line.message for line in lines] == [f"line {number}" for number in (61, 63, 65, 67, 69)]
            logger.info("quiet")
            logger.error("loud\x1b[31m")
            kind, data = next(coming)
            line = msgspec.json.decode(data, type=LogLine)
            assert (kind, line.level, line.message, line.request_id) == ("log", "error", "loud\x1b[31m", None)
        assert json.loads(data)["logger"] == "millstream.test_logs"
