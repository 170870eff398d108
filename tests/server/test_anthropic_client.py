"""The official Anthropic client against a live server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anthropic
import pytest
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

from millstream.ir.deltas import Content, Error, Finish, Reasoning, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.ir.errors import ApiError, context_length_exceeded, overloaded
from millstream.ir.request import ChatRequest, Message, Sampling, Service
from support.live import Live
from support.provider import Step, hello
from support.waiting import until

USER = {"role": "user", "content": "hi"}
ASK = {"model": "tiny", "max_tokens": 50, "messages": [USER]}
ADD = {"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}


@pytest.fixture
async def client(live: Live) -> AsyncIterator[AsyncAnthropic]:
    # No TLS here, and loading its certificates takes longer than most tests.
    http = DefaultAsyncHttpxClient(verify=False, trust_env=False)
    async with AsyncAnthropic(base_url=live.url, api_key="none", max_retries=0, http_client=http) as client:
        yield client


async def test_whole_answer(live: Live, client: AsyncAnthropic) -> None:
    cold = {"temperature": 0}
    answer = await client.messages.create(**ASK, stop_sequences=["x"], system="Be brief.", extra_body=cold)
    assert [block.text for block in answer.content] == ["Hello 0"]
    assert (answer.stop_reason, answer.stop_sequence, answer.model) == ("end_turn", None, "tiny")
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens, answer.usage.output_tokens) == (3, 2, 3)
    assert answer._request_id
    sampling = Sampling(temperature=0, stop=("x",), max_tokens=50)
    turns = (Message("system", "Be brief."), Message("user", "hi"))
    service = Service(handle=live.provider.requests[0].service.handle)
    assert live.provider.requests == [ChatRequest(model="tiny", messages=turns, sampling=sampling, service=service)]


async def test_stream(client: AsyncAnthropic) -> None:
    events = [event async for event in await client.messages.create(**ASK, stream=True)]
    assert [event.type for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0].message.usage.input_tokens == 3
    assert events[0].message.usage.cache_read_input_tokens == 2


async def test_stream_helper_accumulates_thinking_and_calls(live: Live, client: AsyncAnthropic) -> None:
    live.provider.script = lambda request: [
        Start(5),
        Reasoning("hm"),
        Content("I add."),
        ToolCallStart(0, "toolu_a", "add"),
        ToolCallArgs(0, '{"a":'),
        ToolCallArgs(0, "1}"),
        Content("\n"),
        ToolCallStart(1, "toolu_b", "add"),
        ToolCallArgs(1, "{}"),
        Finish("tool_calls", Usage(5, 9)),
    ]
    async with client.messages.stream(**ASK, tools=[ADD]) as stream:
        streamed = await stream.get_final_message()
    whole = await client.messages.create(**ASK, tools=[ADD])
    for answer in (streamed, whole):
        kinds = ["thinking", "text", "tool_use", "text", "tool_use"]
        assert [block.type for block in answer.content] == kinds
        assert answer.content[0].thinking == "hm"
        assert answer.content[0].signature
        assert (answer.content[2].id, answer.content[2].name, answer.content[2].input) == ("toolu_a", "add", {"a": 1})
        assert answer.content[4].input == {}
        assert answer.stop_reason == "tool_use"
    assert [block.model_dump() for block in streamed.content] == [block.model_dump() for block in whole.content]
    # What the client got can be sent again as it is.
    live.provider.script = hello
    results = [{"type": "tool_result", "tool_use_id": name, "content": "2"} for name in ("toolu_a", "toolu_b")]
    again = [USER, {"role": "assistant", "content": streamed.content}, {"role": "user", "content": results}]
    await client.messages.create(**{**ASK, "messages": again}, tools=[ADD])
    assert [turn.role for turn in live.provider.requests[-1].messages] == ["user", "assistant", "tool", "tool"]
    assert live.provider.requests[-1].messages[1].reasoning == "hm"


async def test_beta_and_hidden_thinking(live: Live, client: AsyncAnthropic) -> None:
    live.provider.script = lambda request: [Start(5), Reasoning("hm"), Content("a"), Finish("stop", Usage(5, 9))]
    thinking = {"type": "adaptive", "display": "omitted"}
    async with client.beta.messages.stream(**ASK, thinking=thinking, betas=["effort-2025-11-24"]) as stream:
        answer = await stream.get_final_message()
    assert (answer.content[0].type, answer.content[0].thinking) == ("thinking", "")
    again = [USER, {"role": "assistant", "content": answer.content}, USER]
    await client.messages.create(**{**ASK, "messages": again})
    assert live.provider.requests[-1].messages[1].reasoning == "hm"


async def test_stop_sequences_are_told(live: Live, client: AsyncAnthropic) -> None:
    live.provider.script = lambda request: [Start(5), Content("a"), Finish("stop", Usage(5, 2), stop_sequence="STOP")]
    async with client.messages.stream(**ASK, stop_sequences=["STOP"]) as stream:
        streamed = await stream.get_final_message()
    for answer in (streamed, await client.messages.create(**ASK, stop_sequences=["STOP"])):
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "STOP")


async def test_structured_output(live: Live, client: AsyncAnthropic) -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    await client.messages.create(**ASK, output_config={"format": form})
    assert live.provider.requests[0].response_format.schema == {"type": "object"}


async def test_models(client: AsyncAnthropic) -> None:
    page = await client.models.list()
    assert [model.id async for model in page] == ["tiny"]
    assert (page.has_more, page.first_id, page.last_id) == (False, "tiny", "tiny")
    model = await client.models.retrieve("tiny")
    assert (model.type, model.display_name, int(model.created_at.timestamp())) == ("model", "tiny", 1_700_000_000)
    with pytest.raises(anthropic.NotFoundError) as caught:
        await client.models.retrieve("other")
    assert caught.value.type == "not_found_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_are_typed(live: Live, client: AsyncAnthropic, stream: bool) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens") as bad:
        await client.messages.create(**{**ASK, "max_tokens": 0}, stream=stream)
    assert bad.value.type == "invalid_request_error"
    assert bad.value.request_id == bad.value.body["request_id"]
    with pytest.raises(anthropic.NotFoundError) as missing:
        await client.messages.create(**{**ASK, "model": "claude"}, stream=stream)
    assert missing.value.type == "not_found_error"
    live.provider.refuse = context_length_exceeded(3000, 2048)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 3000 tokens > 2047 maximum"):
        await client.messages.create(**ASK, stream=stream)
    live.provider.refuse = overloaded("The queue is full.", retry_after=1.2)
    with pytest.raises(anthropic.RateLimitError) as full:
        await client.messages.create(**ASK, stream=stream)
    assert full.value.type == "rate_limit_error"
    assert full.value.response.headers["retry-after"] == "2"
    live.provider.refuse = ValueError("secret")  # type: ignore[assignment]
    with pytest.raises(anthropic.InternalServerError) as broken:
        await client.messages.create(**ASK, stream=stream)
    assert broken.value.type == "api_error"
    assert "secret" not in str(broken.value)


@pytest.mark.parametrize("stream", [False, True])
async def test_failures_before_the_first_token(live: Live, client: AsyncAnthropic, stream: bool) -> None:
    live.provider.script = lambda request: [Start(5), ApiError("down", type="server_error", status=503)]
    with pytest.raises(anthropic.APIStatusError) as caught:
        await client.messages.create(**ASK, stream=stream)
    assert caught.value.status_code == 503
    assert caught.value.type == "overloaded_error"


async def test_failure_in_mid_stream(live: Live, client: AsyncAnthropic) -> None:
    live.provider.script = lambda request: [Start(5), Content("a"), Error("engine died", code="engine_error")]
    events = aiter(await client.messages.create(**ASK, stream=True))
    seen = [(await anext(events)).type for _ in range(3)]
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
    with pytest.raises(anthropic.APIStatusError, match="engine died"):
        await anext(events)


async def test_silence_is_filled_with_pings(live: Live, client: AsyncAnthropic) -> None:
    live.provider.script = lambda request: [0.35, *hello(request)]
    async with client.messages.stream(**ASK) as stream:
        assert await stream.get_final_text() == "Hello 0"


async def test_leaving_a_stream_closes_it(live: Live, client: AsyncAnthropic) -> None:
    live.provider.script = lambda request: [Start(5), Content("a"), 3600.0]
    stream = await client.messages.create(**ASK, stream=True)
    await anext(aiter(stream))
    assert live.provider.closed == 0
    await stream.close()
    await until(lambda: live.provider.closed == 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_before_the_first_token_closes_the_stream(
    live: Live, client: AsyncAnthropic, stream: bool
) -> None:
    live.provider.script = lambda request: [Start(5), 3600.0]
    timeout = 0.05
    while not live.provider.requests:  # it may leave before its request has come
        with pytest.raises(anthropic.APITimeoutError):
            await client.with_options(timeout=timeout).messages.create(**ASK, stream=stream)
        timeout *= 2
    await until(lambda: live.provider.closed == len(live.provider.requests))


async def test_the_tool_runner_goes_on_without_a_thread(live: Live, client: AsyncAnthropic) -> None:
    """It asks for a stored conversation first."""
    asked: list[int] = []

    @anthropic.beta_async_tool
    async def double(a: int) -> str:
        """Doubles a number."""
        asked.append(a)
        return str(2 * a)

    def answer(request: ChatRequest) -> list[Step]:
        if request.messages[-1].role == "tool":
            return [Start(9), Content(f"It is {request.messages[-1].content}."), Finish("stop", Usage(9, 3))]
        call = [ToolCallStart(0, "toolu_a", "double"), ToolCallArgs(0, '{"a": 21}')]
        return [Start(5), *call, Finish("tool_calls", Usage(5, 9))]

    live.provider.script = answer
    final = await client.beta.messages.tool_runner(**ASK, tools=[double]).until_done()
    assert [block.text for block in final.content] == ["It is 42."]
    assert asked == [21]
    assert len(live.provider.requests) == 2
