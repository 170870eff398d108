"""Tools and structured output of the default model on Responses and Messages, through the official clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from support.served import Served
from support.shapes import Dog, Weather

MODEL = "smollm2-135m-instruct"
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


SCHEMA = Weather.model_json_schema()
CLOCK = {"type": "object", "properties": {"zone": {"enum": ["CET", "GMT"]}}, "required": ["zone"]}
FUNCTIONS: list[Any] = [
    {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False},
    {"type": "function", "name": "get_time", "parameters": CLOCK, "strict": False},
]
TOOLS: list[Any] = [
    {"name": "get_weather", "input_schema": SCHEMA},
    {"name": "get_time", "input_schema": CLOCK},
]
STREAMED = pytest.mark.parametrize("stream", [False, True])


@pytest.fixture
async def anthropic_client(served: Served) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=served.url, api_key="none", max_retries=0, timeout=120) as client:
        yield client


def check(name: str, arguments: Any) -> None:
    """A call that its tool's schema allows."""
    if name == "get_weather":
        Weather.model_validate(arguments)
    else:
        assert name == "get_time"
        assert arguments["zone"] in ("CET", "GMT")


async def test_responses_parse(client: openai.AsyncOpenAI) -> None:
    answer = await client.responses.parse(
        model=MODEL, input="Invent a dog.", text_format=Dog, temperature=0, max_output_tokens=100
    )
    assert isinstance(answer.output_parsed, Dog)
    assert answer.status == "completed"


@STREAMED
@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}], ids=["required", "named"])
async def test_responses_calls(client: openai.AsyncOpenAI, choice: Any, stream: bool) -> None:
    options: Any = {
        "model": MODEL,
        "input": ASK,
        "tools": FUNCTIONS,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_output_tokens": 100,
        "temperature": 0,
    }
    if stream:
        async with client.responses.stream(**options) as events:
            answer: Any = await events.get_final_response()
    else:
        answer = await client.responses.create(**options)
    (call,) = answer.output
    assert (call.type, call.status, answer.status) == ("function_call", "completed", "completed")
    assert isinstance(choice, str) or call.name == "get_weather"
    check(call.name, json.loads(call.arguments))


@STREAMED
@pytest.mark.parametrize(
    "choice",
    [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "get_weather"}],
    ids=["any", "tool"],
)
async def test_messages_calls(anthropic_client: anthropic.AsyncAnthropic, choice: Any, stream: bool) -> None:
    options: Any = {"model": MODEL, "messages": ASK, "tools": TOOLS, "tool_choice": choice, "max_tokens": 100}
    options["extra_body"] = {"temperature": 0}
    if stream:
        async with anthropic_client.messages.stream(**options) as events:
            answer: Any = await events.get_final_message()
    else:
        answer = await anthropic_client.messages.create(**options)
    (call,) = answer.content
    assert (call.type, answer.stop_reason) == ("tool_use", "tool_use")
    assert choice["type"] == "any" or call.name == "get_weather"
    check(call.name, call.input)


async def test_messages_format(anthropic_client: anthropic.AsyncAnthropic) -> None:
    form = {"format": {"type": "json_schema", "schema": Dog.model_json_schema()}}
    answer: Any = await anthropic_client.messages.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Invent a dog."}],
        max_tokens=100,
        extra_body={"output_config": form, "temperature": 0},
    )
    assert answer.stop_reason == "end_turn"
    Dog.model_validate_json(answer.content[0].text)


async def test_a_schema_at_fault_is_named_in_the_words_of_each_surface(
    client: openai.AsyncOpenAI, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    bad = {"type": "object", "properties": {"q": {"type": "strnig"}}}
    text: Any = {"format": {"type": "json_schema", "name": "x", "schema": bad}}
    message = r"text\.format: the schema cannot be enforced at /properties/q"
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        await client.responses.create(model=MODEL, input="hi", text=text)
    assert caught.value.param == "text.format"
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.format: the schema cannot be enforced"):
        await anthropic_client.messages.create(
            model=MODEL,
            messages=ASK,
            max_tokens=10,
            extra_body={"output_config": {"format": {"type": "json_schema", "schema": bad}}},
        )
