"""Tools and structured output of the default model, which knows neither by itself, through the official client."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import openai
import pytest

from millstream.lint.openai_stream import Expectation, lint_chat
from support.served import Served
from support.shapes import Dog, Weather

MODEL = "smollm2-135m-instruct"
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


WEATHER: Any = openai.pydantic_function_tool(Weather, name="get_weather")
TIME: Any = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {"zone": {"enum": ["CET", "GMT"]}}},
    },
}
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


async def test_a_schema_is_parsed_into_its_model(client: openai.AsyncOpenAI) -> None:
    prompt: list[Any] = [{"role": "user", "content": "Invent a dog."}]
    answer = await client.chat.completions.parse(
        model=MODEL, messages=prompt, response_format=Dog, temperature=1, seed=5, max_tokens=100
    )
    assert isinstance(answer.choices[0].message.parsed, Dog)
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_named_call_has_valid_arguments(client: openai.AsyncOpenAI, stream: bool) -> None:
    options: Any = {"model": MODEL, "messages": ASK, "tools": [WEATHER, TIME], "tool_choice": NAMED, "max_tokens": 80}
    if stream:
        async with client.chat.completions.stream(**options) as events:
            answer: Any = await events.get_final_completion()
    else:
        answer = await client.chat.completions.create(**options)
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "get_weather"
    assert call.id.startswith("call_")
    Weather.model_validate_json(call.function.arguments)
    assert answer.choices[0].message.content in (None, "")


async def test_a_required_call_alone(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL,
        messages=ASK,
        tools=[WEATHER, TIME],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=80,
        n=2,
    )
    for choice in answer.choices:
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls or ()
        assert call.type == "function"
        assert call.function.name in ("get_weather", "get_time")
        json.loads(call.function.arguments)
    calls = [[call.to_dict()["function"] for call in choice.message.tool_calls or ()] for choice in answer.choices]
    assert calls[0] == calls[1]


def test_the_stream_of_a_call_keeps_the_rules_and_streams_arguments(served: Served) -> None:
    body = {
        "model": MODEL,
        "messages": ASK,
        "tools": [WEATHER],
        "tool_choice": "required",
        "stream": True,
        "max_tokens": 80,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    raw = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=60, trust_env=False).content
    assert lint_chat(raw, Expectation(choices=1, usage=True)) == []
    assert raw.count(b'"arguments":') > 4


async def test_a_free_choice_with_results_is_answered(client: openai.AsyncOpenAI) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    talk: list[Any] = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny, 21 degrees"}]},
    ]
    answer = await client.chat.completions.create(
        model=MODEL, messages=talk, tools=[TIME], tool_choice="none", temperature=0, max_tokens=40
    )
    assert answer.choices[0].message.content
    assert not answer.choices[0].message.tool_calls


@pytest.mark.parametrize(
    ("format", "pattern"),
    [
        ({"type": "regex", "pattern": r"[0-9]{3}-[0-9]{4}"}, r"\d{3}-\d{4}"),
        ({"type": "grammar", "grammar": 'start: "yes" | "no"'}, "yes|no"),
    ],
    ids=str,
)
async def test_extensions_hold(client: openai.AsyncOpenAI, format: Any, pattern: str) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=20, temperature=1, seed=1, extra_body={"response_format": format}
    )
    content = answer.choices[0].message.content
    assert content is not None

    assert re.fullmatch(pattern, content)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_enforced_is_a_bad_request(client: openai.AsyncOpenAI, stream: bool) -> None:
    bad = {"name": "bad", "parameters": {"type": "object", "properties": {"q": {"type": "strnig"}}}}
    tools: list[Any] = [WEATHER, {"type": "function", "function": bad}]
    with pytest.raises(openai.BadRequestError, match=r"'bad' cannot be enforced at /properties/q") as caught:
        await client.chat.completions.create(
            model=MODEL, messages=ASK, tools=tools, tool_choice="required", stream=stream
        )
    assert caught.value.param == "tools[1]"
    with pytest.raises(openai.BadRequestError, match="no tool 'other' is declared"):
        await client.chat.completions.create(
            model=MODEL,
            messages=ASK,
            tools=tools,
            tool_choice={"type": "function", "function": {"name": "other"}},
            stream=stream,
        )


def test_nothing_is_left_running(served: Served) -> None:
    assert served.wait_idle()["status"] == "ready"
