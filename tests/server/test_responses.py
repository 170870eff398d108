"""The official client's Responses API against a live server, with stored answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from millstream.ir.deltas import Content, Error, Finish, Reasoning, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.ir.errors import context_length_exceeded, overloaded
from millstream.ir.request import ChatRequest, Message
from millstream.server.sqlite_store import SqliteStore
from millstream.server.store import StoreLimits
from support.live import Live, serving
from support.responses import events, kinds, legal
from support.waiting import wait_until
from support.wire import logprob

FUNCTION: Any = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}
CAPTURES = Path(__file__).parents[1] / "surfaces" / "captures"


def asked(live: Live) -> tuple[Message, ...]:
    request = live.provider.requests[-1]
    assert isinstance(request, ChatRequest)
    return request.messages


def post(live: Live, **fields: Any) -> httpx.Response:
    with live.client() as http:
        return http.post("/v1/responses", json={"model": "tiny", "input": "hi", **fields})


async def test_whole_answer(client: AsyncOpenAI) -> None:
    answer = await client.responses.create(model="tiny", input="hi", instructions="be nice", metadata={"a": "b"})
    assert answer.output_text == "Hello 0"
    assert (answer.status, answer.error, answer.incomplete_details) == ("completed", None, None)
    assert (answer.instructions, answer.metadata, answer.temperature) == ("be nice", {"a": "b"}, 1.0)
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (5, 3)
    assert answer.usage.input_tokens_details.cached_tokens == 2


async def test_stream(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="tiny", input="hi", stream=True)
    sent = [event async for event in stream]
    assert [event.sequence_number for event in sent] == list(range(len(sent)))
    assert "".join(event.delta for event in sent if event.type == "response.output_text.delta") == "Hello 0"
    assert sent[-1].type == "response.completed"
    assert sent[-1].response.output_text == "Hello 0"


async def test_stream_helper_accumulates(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [
        Start(5),
        Reasoning("hm"),
        Content("Let me see."),
        ToolCallStart(0, "call_a", "add"),
        ToolCallArgs(0, '{"a":'),
        ToolCallArgs(0, "1}"),
        ToolCallStart(1, "call_b", "add"),
        ToolCallArgs(1, "{}"),
        Finish("tool_calls", Usage(5, 9)),
    ]
    async with client.responses.stream(model="tiny", input="hi", tools=[FUNCTION]) as stream:
        async for _ in stream:
            pass
        answer = await stream.get_final_response()
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call", "function_call"]
    assert [item.arguments for item in answer.output if item.type == "function_call"] == ['{"a":1}', "{}"]


async def test_parse(live: Live, client: AsyncOpenAI) -> None:
    class Point(BaseModel):
        x: int

    live.provider.script = lambda request: [Content('{"x": 3}'), Finish("stop", Usage(5, 3))]
    answer = await client.responses.parse(model="tiny", input="hi", text_format=Point)
    assert answer.output_parsed == Point(x=3)
    request = live.provider.requests[-1]
    assert isinstance(request, ChatRequest)
    assert (request.response_format.kind, request.response_format.name) == ("json_schema", "Point")


async def test_logprobs(live: Live, client: AsyncOpenAI) -> None:
    entry = logprob("a")
    live.provider.script = lambda request: [
        Reasoning("h", logprobs=(logprob("h"),)),
        Content("a", logprobs=(entry,)),
        Finish("stop", Usage(5, 1)),
    ]
    answer = await client.responses.create(model="tiny", input="hi", include=["message.output_text.logprobs"])
    message = answer.output[1]
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert [(each.token, each.bytes) for each in part.logprobs] == [("a", [97])]


async def test_a_conversation_goes_on(live: Live, client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="tiny", input="one", instructions="first rule")
    second = await client.responses.create(model="tiny", input="two", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    third = await client.responses.create(
        model="tiny", input="three", previous_response_id=second.id, instructions="other rule", store=False
    )
    assert asked(live) == (
        Message("system", "other rule"),
        Message("user", "one"),
        Message("assistant", "Hello 0"),
        Message("user", "two"),
        Message("assistant", "Hello 0"),
        Message("user", "three"),
    )
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(third.id)


async def test_a_streamed_tool_turn_goes_on(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [
        Reasoning("hm"),
        ToolCallStart(0, "call_a", "s__add"),
        ToolCallArgs(0, "{}"),
        Finish("tool_calls", Usage(5, 9)),
    ]
    tools: Any = [{"type": "namespace", "name": "s", "description": "", "tools": [FUNCTION]}]
    async with client.responses.stream(model="tiny", input="one", tools=tools) as stream:
        async for _ in stream:
            pass
        answer = await stream.get_final_response()
    output: Any = [{"type": "function_call_output", "call_id": "call_a", "output": "3"}]
    await client.responses.create(model="tiny", input=output, previous_response_id=answer.id, tools=tools)
    _, turn, result = asked(live)
    assert (turn.reasoning, turn.tool_calls[0].name, turn.tool_calls[0].id) == ("hm", "s__add", "call_a")
    assert result == Message("tool", "3", tool_call_id="call_a")


async def test_retrieved_as_it_was_sent(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="tiny", input="hi", stream=True)
    last = [event async for event in stream][-1]
    assert last.type == "response.completed"
    # The last event went out after the response was stored: it is there at once.
    assert await client.responses.retrieve(last.response.id) == last.response
    await client.responses.delete(last.response.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        await client.responses.retrieve(last.response.id)


async def test_input_items(client: AsyncOpenAI) -> None:
    content: Any = [{"role": "user", "content": str(number)} for number in range(5)]
    answer = await client.responses.create(model="tiny", input=content)
    page = await client.responses.input_items.list(answer.id, limit=2)
    texts = [item.content[0].text async for item in page]
    assert texts == ["4", "3", "2", "1", "0"]
    forward = await client.responses.input_items.list(answer.id, order="asc")
    assert [item.content[0].text async for item in forward] == ["0", "1", "2", "3", "4"]
    reference: Any = [{"type": "item_reference", "id": forward.data[1].id}]
    again = await client.responses.create(model="tiny", input=reference)
    assert [item.id async for item in await client.responses.input_items.list(again.id)] == [forward.data[1].id]


async def test_what_is_not_there(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model="tiny", input="hi", previous_response_id="resp_none")
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")
    answer = await client.responses.create(model="tiny", input="hi")
    with pytest.raises(openai.BadRequestError, match="background"):
        await client.responses.cancel(answer.id)
    with pytest.raises(openai.BadRequestError, match="'stream'"):
        await client.responses.retrieve(answer.id, stream=True)
    with pytest.raises(openai.BadRequestError, match="limit"):
        await client.responses.input_items.list(answer.id, limit=101)
    with pytest.raises(openai.BadRequestError, match="after"):
        await client.responses.input_items.list(answer.id, after="msg_none")
    for name in ("resp_none", "..%2f..%2fetc", "x" * 500):
        with pytest.raises(openai.NotFoundError):
            await client.responses.delete(name)


async def test_errors_are_typed(live: Live, client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.responses.create(model="other", input="hi")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="tiny", input="hi", background=True)
    assert refused.value.param == "background"
    live.provider.refuse = overloaded("full", retry_after=1)
    with pytest.raises(openai.RateLimitError):
        await client.responses.create(model="tiny", input="hi", stream=True)
    live.provider.refuse = context_length_exceeded(9, 8)
    with pytest.raises(openai.BadRequestError) as long:
        await client.responses.create(model="tiny", input="hi")
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "input")


def test_paths_that_are_refused_by_name(live: Live) -> None:
    with live.client() as http:
        for path in ("compact", "input_tokens"):
            answer = http.post(f"/v1/responses/{path}", json={})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (404, "not_supported")
            assert f"/v1/responses/{path} is not supported" in error["message"]


async def test_a_failure_in_the_middle(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [Content("Hel"), ValueError("secret")]
    stream = await client.responses.create(model="tiny", input="hi", stream=True)
    last = [event async for event in stream][-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "server_error"
    assert "secret" not in last.response.error.message
    assert (await client.responses.retrieve(last.response.id)).status == "failed"
    with pytest.raises(openai.InternalServerError):
        await client.responses.create(model="tiny", input="hi")


async def test_the_limit_is_incomplete(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [Content("Hel"), Finish("length", Usage(5, 1))]
    answer = await client.responses.create(model="tiny", input="hi", max_output_tokens=1)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_silence_is_filled_with_events(live: Live) -> None:
    raw = b""

    def silent(times: int) -> Iterator[float]:
        while raw.count(b"event: response.in_progress") < times:
            yield 0.01

    def script(request: Any) -> Iterator[Any]:
        yield from silent(3)
        yield Content("a")
        yield from silent(4)
        yield Finish("stop", Usage(5, 1))

    live.provider.script = script
    with live.client() as http, http.stream("POST", "/v1/responses", json=_body(stream=True)) as answer:
        for part in answer.iter_bytes():
            raw += part
    legal(raw)
    assert kinds(raw).count("in_progress") > 2
    assert events(raw)[-1]["response"]["status"] == "completed"


def test_raw_streams_are_legal(live: Live) -> None:
    for capture in sorted(CAPTURES.glob("codex-*.json")):
        with live.client() as http:
            answer = http.post("/v1/responses", json=json.loads(capture.read_text()))
        assert answer.status_code == 200
        legal(answer.content)
        assert ("x-millstream-warning" in answer.headers) == ("web_search" in capture.read_text())


def test_a_stream_and_the_whole_answer_agree(live: Live) -> None:
    streamed = events(post(live, stream=True).content)[-1]["response"]
    whole = post(live).json()
    minted = {"id", "created_at", "completed_at", "output"}
    assert {key: value for key, value in streamed.items() if key not in minted} == {
        key: value for key, value in whole.items() if key not in minted
    }
    assert [item["content"] for item in streamed["output"]] == [item["content"] for item in whole["output"]]


def test_truncation(live: Live) -> None:
    def script(request: Any) -> Any:
        if len(request.messages) > 2:
            raise context_length_exceeded(9, 8)
        return [Content("ok"), Finish("stop", Usage(5, 1))]

    stream = live.provider.stream

    async def checked(request: Any) -> Any:
        script(request)
        return await stream(request)

    live.provider.stream = checked  # type: ignore[method-assign]
    try:
        turns = [{"role": "user", "content": str(number)} for number in range(5)]
        assert post(live, input=turns).json()["error"]["code"] == "context_length_exceeded"
        assert post(live, input=turns, truncation="auto").json()["truncation"] == "auto"
        assert [message.content for message in asked(live)] == ["3", "4"]
    finally:
        del live.provider.stream  # type: ignore[method-assign]


def test_tenants_do_not_share(live: Live) -> None:
    """Whoever sets the tenant, answers of one are nothing to the other."""
    app = live.app

    async def as_tenant(scope: Any, receive: Any, send: Any) -> None:
        names = dict(scope["headers"]).get(b"x-test-tenant", b"").decode()
        await app({**scope, "state": {**scope.get("state", {}), "tenant": names}}, receive, send)

    transport = httpx.ASGITransport(app=as_tenant)

    async def play() -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            body = {"model": "tiny", "input": "hi"}
            made = (await http.post("/v1/responses", json=body, headers={"x-test-tenant": "a"})).json()
            for name, status in (("a", 200), ("b", 404)):
                got = await http.get(f"/v1/responses/{made['id']}", headers={"x-test-tenant": name})
                assert got.status_code == status
            body["previous_response_id"] = made["id"]
            refused = await http.post("/v1/responses", json=body, headers={"x-test-tenant": "b"})
            assert refused.json()["error"]["code"] == "previous_response_not_found"
            assert live.provider.requests[-1].tenant == "a"

    import asyncio

    asyncio.run(play())


def test_an_answer_that_could_not_be_stored_says_so() -> None:
    with serving(store=StoreLimits(bytes=10)) as live:
        answer = post(live, store=True).json()
        assert (answer["status"], answer["store"]) == ("completed", False)
        streamed = events(legal(post(live, stream=True).content))[-1]["response"]
        assert streamed["store"] is False


def test_a_broken_store_loses_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def save(self: SqliteStore, answer: Any) -> bool:
        raise OSError("disk full")

    monkeypatch.setattr(SqliteStore, "save", save)
    with serving() as live:
        assert post(live).json()["store"] is False


def test_an_early_failure_has_its_status(live: Live) -> None:
    live.provider.script = lambda request: [Error("busy", type="rate_limit_exceeded", status=429)]
    assert post(live, stream=True).status_code == 429


def test_a_client_that_leaves_frees_its_place(live: Live) -> None:
    live.provider.script = lambda request: [Content("a"), 30.0, Finish("stop", Usage(5, 1))]
    with live.client() as http, http.stream("POST", "/v1/responses", json=_body(stream=True)) as answer:
        next(answer.iter_bytes())
    with live.client() as http:  # a later request is served while the other is being closed
        assert http.get("/health").status_code == 200
    wait_until(lambda: live.provider.closed == 1)


def _body(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "input": "hi", **fields}


async def test_half_a_call_is_no_history(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [
        Content("I"),
        ToolCallStart(0, "call_a", "add"),
        ToolCallArgs(0, '{"a'),
        Finish("length", Usage(5, 9)),
    ]
    cut = await client.responses.create(model="tiny", input="one", tools=[FUNCTION])
    assert [item.type for item in cut.output] == ["message", "function_call"]
    await client.responses.create(model="tiny", input="two", previous_response_id=cut.id)
    assert asked(live) == (Message("user", "one"), Message("assistant", "I"), Message("user", "two"))


def test_a_server_that_stops_tells_so() -> None:
    with serving(drain_seconds=0.1) as live:
        live.provider.script = lambda request: [Content("a"), 30.0, Finish("stop", Usage(5, 1))]
        with live.client() as http, http.stream("POST", "/v1/responses", json=_body(stream=True)) as answer:
            parts = answer.iter_bytes()
            raw = next(parts)
            live.stop()
            raw += b"".join(parts)
    last = events(legal(raw))[-1]["response"]
    assert (last["status"], last["store"], last["error"]["code"]) == ("failed", False, "server_error")
