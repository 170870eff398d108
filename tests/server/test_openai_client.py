"""The official client against a live server."""

from __future__ import annotations

import asyncio
import math

import openai
import pytest
from openai import AsyncOpenAI

from millstream.ir.deltas import Content, Error, Finish, Reasoning, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.ir.errors import ApiError, context_length_exceeded, overloaded
from millstream.ir.request import ChatRequest, Message, Sampling, Service
from support.live import Live
from support.provider import hello
from support.waiting import until
from support.wire import logprob

USER = {"role": "user", "content": "hi"}


async def test_whole_answer(live: Live, client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="tiny", messages=[USER], temperature=0, seed=3, stop=["x"])
    assert answer.choices[0].message.content == "Hello 0"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 3, 8)
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    sampling = Sampling(temperature=0, seed=3, stop=("x",))
    service = Service(handle=live.provider.requests[0].service.handle)
    assert live.provider.requests == [
        ChatRequest(model="tiny", messages=(Message("user", "hi"),), sampling=sampling, service=service)
    ]


async def test_stream_with_usage(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="tiny", messages=[USER], n=2, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    texts = ["", ""]
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == ["Hello 0", "Hello 1"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 11
    assert len({chunk.id for chunk in chunks}) == 1


async def test_stream_helper_accumulates(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [
        Start(5),
        Reasoning("hm"),
        ToolCallStart(0, "call_a", "add"),
        ToolCallArgs(0, '{"a":'),
        ToolCallArgs(0, "1}"),
        ToolCallStart(1, "call_b", "sub"),
        ToolCallArgs(1, "{}"),
        Finish("tool_calls", Usage(5, 9)),
    ]
    async with client.chat.completions.stream(model="tiny", messages=[USER]) as stream:
        final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("call_a", "add", '{"a":1}'),
        ("call_b", "sub", "{}"),
    ]
    assert final.choices[0].message.reasoning_content == "hm"


async def test_logprobs(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [
        Content("a", logprobs=(logprob("a"), logprob("b", -math.inf))),
        Finish("length", Usage(5, 2)),
    ]
    answer = await client.chat.completions.create(model="tiny", messages=[USER], logprobs=True, top_logprobs=2)
    content = answer.choices[0].logprobs.content
    assert [(entry.token, entry.logprob, entry.bytes) for entry in content] == [("a", -0.5, [97]), ("b", -9999.0, [98])]
    assert [top.token for top in content[0].top_logprobs] == ["a", "x"]
    assert live.provider.requests[0].output.logprobs == 2


async def test_completions(client: AsyncOpenAI) -> None:
    answer = await client.completions.create(model="tiny", prompt="hi")
    assert answer.choices[0].text == "Hello 0"
    stream = await client.completions.create(model="tiny", prompt=[1, 2], n=2, stream=True)
    texts = ["", ""]
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["Hello 0", "Hello 1"]


async def test_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["tiny"]
    assert (await client.models.retrieve("tiny")).created == 1_700_000_000
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("some/other")
    assert caught.value.code == "model_not_found"


async def test_unknown_model(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="gpt-4o", messages=[USER])
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


async def test_bad_request(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="tiny", messages=[USER], temperature=3)
    assert caught.value.param == "temperature"
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_of_the_provider(live: Live, client: AsyncOpenAI, stream: bool) -> None:
    live.provider.refuse = context_length_exceeded(3000, 2048)
    with pytest.raises(openai.BadRequestError, match=r"2048 tokens.*prompt is too long.*3000 tokens") as bad:
        await client.chat.completions.create(model="tiny", messages=[USER], stream=stream)
    assert bad.value.code == "context_length_exceeded"
    live.provider.refuse = overloaded("The queue is full.", retry_after=1.2)
    with pytest.raises(openai.RateLimitError) as full:
        await client.chat.completions.create(model="tiny", messages=[USER], stream=stream)
    assert full.value.response.headers["retry-after"] == "2"
    live.provider.refuse = ValueError("secret")  # type: ignore[assignment]
    with pytest.raises(openai.InternalServerError) as broken:
        await client.chat.completions.create(model="tiny", messages=[USER], stream=stream)
    assert "secret" not in str(broken.value)


@pytest.mark.parametrize("stream", [False, True])
async def test_failures_before_the_first_token(live: Live, client: AsyncOpenAI, stream: bool) -> None:
    live.provider.script = lambda request: [Start(5), ApiError("down", type="server_error", status=503)]
    with pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(model="tiny", messages=[USER], stream=stream)
    assert caught.value.status_code == 503


async def test_failure_in_mid_stream(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [Content("a"), Error("engine died", code="engine_error")]
    stream = await client.chat.completions.create(model="tiny", messages=[USER], stream=True)
    chunks = aiter(stream)
    assert [(await anext(chunks)).choices[0].delta.content for _ in range(2)] == ["", "a"]
    with pytest.raises(openai.APIError, match="engine died"):
        await anext(chunks)


async def test_silence_does_not_disturb_the_client(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [Start(5), 0.35, *hello(request)[1:]]
    stream = await client.chat.completions.create(model="tiny", messages=[USER], stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Hello 0"


async def test_leaving_a_stream_closes_it(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [Start(5), Content("a"), 3600.0]
    stream = await client.chat.completions.create(model="tiny", messages=[USER], stream=True)
    await anext(aiter(stream))
    assert live.provider.closed == 0
    await stream.close()
    await until(lambda: live.provider.closed == 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_before_the_first_token_closes_the_stream(live: Live, client: AsyncOpenAI, stream: bool) -> None:
    live.provider.script = lambda request: [Start(5), 3600.0]
    timeout = 0.05
    while not live.provider.requests:  # it may leave before its request has come
        with pytest.raises(openai.APITimeoutError):
            await client.with_options(timeout=timeout).chat.completions.create(
                model="tiny", messages=[USER], stream=stream
            )
        timeout *= 2
    await until(lambda: live.provider.closed == len(live.provider.requests))


async def test_many_streams_at_once(live: Live, client: AsyncOpenAI) -> None:
    live.provider.script = lambda request: [Start(5), *[Content("a"), 0.001] * 30, Finish("stop", Usage(5, 30))]

    async def one() -> str:
        stream = await client.chat.completions.create(model="tiny", messages=[USER], stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert await asyncio.gather(*(one() for _ in range(16))) == ["a" * 30] * 16
    assert live.provider.closed == 16
