"""Stored chat completions: the official client against a live server, and what the client does not ask."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from starlette.types import Receive, Scope, Send

from millstream.ir.deltas import Content, Error, Finish, Reasoning, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.server.sqlite_store import SqliteStore
from millstream.server.store import StoreLimits
from support.live import Live, serving
from support.wire import chunks, fold_chat, legal

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


def post(live: Live, **fields: Any) -> httpx.Response:
    with live.client() as http:
        return http.post(CHAT, json={**ASK, **fields})


async def ids(page: Any) -> list[str]:
    return [one.id async for one in page]


async def test_the_life_of_a_completion(client: AsyncOpenAI) -> None:
    made = await client.chat.completions.create(**ASK, store=True, metadata={"run": "life"}, temperature=0.5, seed=3)
    assert made.choices[0].message.content == "Hello 0"

    kept = await client.chat.completions.retrieve(made.id)
    sent = made.model_dump(exclude_unset=True)
    found = kept.model_dump(exclude_unset=True)
    assert {name: found[name] for name in sent} == sent
    assert kept.metadata == {"run": "life"}
    assert (found["temperature"], found["seed"], found["top_p"], found["tools"]) == (0.5, 3, 1.0, None)
    assert found["request_id"] == made._request_id

    changed = await client.chat.completions.update(made.id, metadata={"run": "other", "é": ""})
    assert changed.metadata == {"run": "other", "é": ""}
    assert changed.choices == kept.choices
    assert (await client.chat.completions.retrieve(made.id)).metadata == changed.metadata
    assert (await client.chat.completions.update(made.id, metadata=None)).metadata == {}

    gone = await client.chat.completions.delete(made.id)
    assert (gone.id, gone.deleted, gone.object) == (made.id, True, "chat.completion.deleted")
    for ask in (client.chat.completions.retrieve, client.chat.completions.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            await ask(made.id)
        assert made.id in caught.value.message


async def test_lists(client: AsyncOpenAI) -> None:
    made = []
    for number in range(5):
        answer = await client.chat.completions.create(
            **ASK, store=True, metadata={"list": "here", "odd": str(number % 2), "number": str(number)}
        )
        made.append(answer.id)
    await client.chat.completions.create(**ASK)
    mine = {"metadata": {"list": "here"}}
    completions = client.chat.completions
    assert await ids(completions.list(**mine)) == made
    assert await ids(completions.list(**mine, limit=2)) == made  # the client follows the pages
    assert await ids(completions.list(**mine, limit=2, order="desc")) == made[::-1]
    assert await ids(completions.list(metadata={"list": "here", "odd": "1"})) == [made[1], made[3]]
    assert await ids(completions.list(**mine, model="none")) == []
    assert await ids(completions.list(**mine, model="tiny", after=made[2])) == made[3:]
    page = await completions.list(**mine, limit=2, after=made[0])
    assert ([one.id for one in page.data], page.has_more) == (made[1:3], True)
    assert page.data[0].metadata == {"list": "here", "odd": "1", "number": "1"}
    raw = page.model_dump()
    assert (raw["object"], raw["first_id"], raw["last_id"]) == ("list", made[1], made[2])


async def test_messages(live: Live, client: AsyncOpenAI) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "o"}, {"type": "text", "text": "ne"}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    ]
    made = await client.chat.completions.create(model="tiny", messages=messages, store=True)
    told = [one async for one in client.chat.completions.messages.list(made.id, limit=3)]
    assert [one.id for one in told] == [f"{made.id}-{place}" for place in range(4)]
    assert [one.role for one in told] == ["developer", "user", "assistant", "tool"]
    assert [one.content for one in told] == ["Be brief.", "one", None, "noon"]
    assert [part.text for part in told[1].content_parts or ()] == ["o", "ne"]
    assert told[0].content_parts is None
    assert [tool.model_dump() for tool in told[2].tool_calls or ()] == [call]
    assert told[1].model_dump()["name"] == "ann"
    assert told[3].model_dump()["tool_call_id"] == "c1"
    assert await ids(client.chat.completions.messages.list(made.id, order="desc", after=told[2].id)) == [
        told[1].id,
        told[0].id,
    ]
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.messages.list("chatcmpl-none")


def rich(request: Any) -> Any:
    return [
        Start(5),
        Reasoning("hm"),
        Content("I look."),
        ToolCallStart(0, "call_a", "add"),
        ToolCallArgs(0, '{"a":'),
        ToolCallArgs(0, "1}"),
        Finish("tool_calls", Usage(5, 9)),
    ]


async def test_a_stream_is_stored_as_what_it_folds_to(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = rich
    raw = legal(post(live, stream=True, store=True, metadata={"a": "b"}).content, "chat_completions")
    name = chunks(raw)[0]["id"]
    kept = (await client.chat.completions.retrieve(name)).model_dump(exclude_unset=True)
    whole = post(live).json()
    assert kept["choices"] == whole["choices"]
    assert kept["usage"] == whole["usage"]
    assert (kept["object"], kept["created"]) == ("chat.completion", chunks(raw)[0]["created"])
    folded = fold_chat(raw)[0]
    assert kept["choices"][0]["message"]["content"] == folded["content"]
    assert kept["metadata"] == {"a": "b"}


async def test_all_choices_are_kept(client: AsyncOpenAI) -> None:
    made = await client.chat.completions.create(**ASK, n=3, store=True)
    kept = await client.chat.completions.retrieve(made.id)
    assert [choice.message.content for choice in kept.choices] == ["Hello 0", "Hello 1", "Hello 2"]


@pytest.mark.parametrize("store", [None, False])
async def test_what_is_not_to_be_stored_is_not(client: AsyncOpenAI, store: bool | None) -> None:
    made = await client.chat.completions.create(**ASK, store=store)
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.retrieve(made.id)


@pytest.mark.parametrize("stream", [False, True])
def test_what_failed_is_not_stored(live: Live, stream: bool) -> None:
    live.provider.script = lambda request: [Start(5), Content("Hel"), Error("broken")]
    answer = post(live, stream=stream, store=True, metadata={"of": f"failed {stream}"})
    assert "broken" in answer.text
    with live.client() as http:
        assert http.get(CHAT, params={"metadata[of]": f"failed {stream}"}).json()["data"] == []


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"metadata": {"a": "b"}}, "metadata", "only allowed when 'store' is enabled"),
        ({"metadata": {"a": "b"}, "store": False}, "metadata", "only allowed when 'store' is enabled"),
        ({"store": True, "metadata": {str(n): "" for n in range(17)}}, "metadata", "16"),
        ({"store": True, "metadata": {"k" * 65: ""}}, "metadata", "64"),
        ({"store": True, "metadata": {"k": "v" * 513}}, "metadata.k", "512"),
        ({"store": True, "metadata": {"k": 1}}, "metadata[...]", "expected string, got integer"),
        ({"store": True, "metadata": ["k"]}, "metadata", "expected object, got array"),
        ({"store": "yes"}, "store", "expected boolean"),
        ({"service_tier": "cheap"}, "service_tier", "flex"),
    ],
)
def test_what_cannot_be_stored_is_named(live: Live, fields: dict[str, Any], param: str, says: str) -> None:
    answer = post(live, **fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert says in error["message"]


def test_metadata_at_its_bounds_is_taken(live: Live) -> None:
    full = {f"{n:02}" + "é" * 62: "😀" * 512 for n in range(16)}
    made = post(live, store=True, metadata=full).json()
    with live.client() as http:
        assert http.get(f"{CHAT}/{made['id']}").json()["metadata"] == full
    assert post(live, metadata={}).status_code == 200
    assert post(live, metadata=None, store=None).status_code == 200


@pytest.mark.parametrize("tier", ["auto", "default", "flex", "scale", "priority", "fast"])
def test_the_tier_that_served_is_told_where_one_was_named(live: Live, tier: str) -> None:
    assert post(live, service_tier=tier).json()["service_tier"] == "default"
    told = chunks(legal(post(live, service_tier=tier, stream=True).content, "chat_completions"))
    assert {chunk["service_tier"] for chunk in told} == {"default"}


def test_no_tier_is_told_unasked(live: Live) -> None:
    assert "service_tier" not in post(live).json()
    assert "service_tier" not in post(live, stream=True).text


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("GET", "?limit=0", None, "limit"),
        ("GET", "?limit=101", None, "limit"),
        ("GET", "?order=up", None, "order"),
        ("GET", "?after=chatcmpl-none", None, "after"),
        ("GET", "?metadata=x", None, "metadata"),
        ("GET", "/{id}/messages?after=none", None, "after"),
        ("POST", "/{id}", {}, "metadata"),
        ("POST", "/{id}", {"metadata": {"a": 1}}, "metadata[...]"),
        ("POST", "/{id}", {"metadata": {}, "model": "x"}, "model"),
        ("POST", "/{id}", {"metadata": {"k" * 65: ""}}, "metadata"),
    ],
)
def test_bad_asks_are_400s(live: Live, method: str, path: str, body: Any, param: str) -> None:
    made = post(live, store=True).json()["id"]
    with live.client() as http:
        answer = http.request(method, CHAT + path.format(id=made), json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/messages")])
def test_unknown_and_other_tenants_completions_are_404s(live: Live, method: str, path: str) -> None:
    app = live.app

    async def as_tenant(scope: Scope, receive: Receive, send: Send) -> None:
        name = dict(scope["headers"]).get(b"x-test-tenant", b"").decode()
        await app({**scope, "state": {**scope.get("state", {}), "tenant": name}}, receive, send)

    async def play() -> None:
        transport = httpx.ASGITransport(app=as_tenant)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            a, b = {"x-test-tenant": "a"}, {"x-test-tenant": "b"}
            made = (await http.post(CHAT, json={**ASK, "store": True}, headers=a)).json()["id"]
            body = {"metadata": {}} if method == "POST" else None
            for name, who in ((made, b), ("chatcmpl-none", a), ("resp_none", a)):
                answer = await http.request(method, f"{CHAT}/{name}{path}", json=body, headers=who)
                assert answer.status_code == 404
                error = answer.json()["error"]
                assert set(error) == {"message", "type", "param", "code"}
                assert name in error["message"]
            assert made not in [one["id"] for one in (await http.get(CHAT, headers=b)).json()["data"]]
            assert made in [one["id"] for one in (await http.get(CHAT, headers=a)).json()["data"]]
            assert (await http.get(f"{CHAT}/{made}", headers=a)).status_code == 200

    import asyncio

    asyncio.run(play())


@pytest.mark.parametrize("stream", [False, True])
def test_a_store_that_fails_costs_no_answer(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: SqliteStore, answer: Any) -> bool:
        raise sqlite3.OperationalError("disk is full")

    monkeypatch.setattr(SqliteStore, "save", broken)
    with serving() as live:
        answer = post(live, store=True, stream=stream)
        assert answer.status_code == 200
        assert re.search("Hel.*lo 0", answer.text, re.DOTALL)
        if stream:
            legal(answer.content, "chat_completions")


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_too_large_for_the_store_is_no_less_an_answer(stream: bool) -> None:
    with serving(store=StoreLimits(bytes=10)) as live:
        answer = post(live, store=True, stream=stream)
        assert answer.status_code == 200
        with live.client() as http:
            assert http.get(CHAT).json() == {
                "object": "list",
                "data": [],
                "first_id": None,
                "last_id": None,
                "has_more": False,
            }


def test_all_methods_of_a_path_are_allowed(live: Live) -> None:
    with live.client() as http:
        for path, methods in (
            (CHAT, "GET, HEAD, POST"),
            (f"{CHAT}/x", "DELETE, GET, HEAD, POST"),
            ("/v1/responses/x", "DELETE, GET, HEAD"),
        ):
            answer = http.put(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods)
            assert http.options(path).headers["allow"] == f"{methods}, OPTIONS"
