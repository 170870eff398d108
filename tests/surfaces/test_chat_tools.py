"""Tools, tool choice and response format of chat requests: what is read, and what is refused with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.ir.errors import ApiError
from millstream.ir.request import ChatRequest, ResponseFormat, Tool, ToolChoice
from millstream.surfaces import openai_chat

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": SCHEMA}}
TIME = {"type": "function", "function": {"name": "get-time_2", "strict": True}}
BASE = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def decode(**fields: Any) -> ChatRequest:
    request = openai_chat.decode(json.dumps({**BASE, **fields}).encode()).request
    assert isinstance(request, ChatRequest)
    return request


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def function(**fields: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **fields}}]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_tools_are_read() -> None:
    request = decode(tools=[WEATHER, TIME], parallel_tool_calls=False)
    assert request.tools == (Tool("get_weather", "d", SCHEMA), Tool("get-time_2", strict=True))
    assert request.tool_choice == ToolChoice()
    assert not request.parallel_tool_calls
    assert decode(tools=[WEATHER]).parallel_tool_calls


@pytest.mark.parametrize(
    ("wire", "choice"),
    [
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        (NAMED, ToolChoice("required", ("get_weather",))),
        (allowed("auto", "get-time_2", "get-time_2"), ToolChoice("auto", ("get-time_2",))),
        (allowed("required", "get_weather", "get-time_2"), ToolChoice("required", ("get_weather", "get-time_2"))),
    ],
    ids=str,
)
def test_tool_choices(wire: Any, choice: ToolChoice) -> None:
    assert decode(tools=[WEATHER, TIME], tool_choice=wire).tool_choice == choice


@pytest.mark.parametrize(
    ("wire", "format"),
    [
        ({"type": "text"}, ResponseFormat()),
        ({"type": "json_object"}, ResponseFormat("json_object")),
        ({"type": "json_object", "schema": SCHEMA}, ResponseFormat("json_schema", schema=SCHEMA)),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
            ResponseFormat("json_schema", schema=SCHEMA, name="n", strict=True),
        ),
        ({"type": "regex", "pattern": "a+"}, ResponseFormat("regex", pattern="a+")),
        ({"type": "grammar", "grammar": 'start: "a"'}, ResponseFormat("grammar", pattern='start: "a"')),
    ],
    ids=str,
)
def test_response_formats(wire: Any, format: ResponseFormat) -> None:
    assert decode(response_format=wire).response_format == format


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tools": {}}, "tools", "expected array"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type", "got 'custom'"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "is required"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type", "is required"),
        ({"tools": function(name="a b")}, "tools[0].function.name", "letters, digits"),
        ({"tools": function(name="")}, "tools[0].function.name", "1 to 64"),
        ({"tools": function(name="x" * 65)}, "tools[0].function.name", "1 to 64"),
        ({"tools": [WEATHER, TIME, WEATHER]}, "tools[2].function.name", "'get_weather' is declared twice"),
        ({"tools": function(parameters=[])}, "tools[0].function.parameters", "expected object"),
        ({"tools": function(parameters={"type": "string"})}, "tools[0].function.parameters", "got type 'string'"),
        ({"tools": function(parameters=nested(50))}, "tools[0].function.parameters", "nested too deeply"),
        ({"tools": function(strict=1)}, "tools[0].function.strict", "expected boolean"),
        ({"tools": [WEATHER] * 1025}, "tools", "at most 1024"),
        ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
        ({"tool_choice": "any", "tools": [WEATHER]}, "tool_choice", "one of none, auto, required"),
        ({"tool_choice": NAMED}, "tool_choice.function.name", "no tool 'get_weather' is declared"),
        ({"tool_choice": NAMED, "tools": [TIME]}, "tool_choice.function.name", "no tool 'get_weather' is declared"),
        ({"tool_choice": {"type": "function"}, "tools": [TIME]}, "tool_choice.function", "is required"),
        ({"tool_choice": {"type": "custom"}, "tools": [TIME]}, "tool_choice.type", "got 'custom'"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [TIME]}, "tool_choice.allowed_tools", "is required"),
        ({"tool_choice": allowed("auto"), "tools": [TIME]}, "tool_choice.allowed_tools.tools", "not be empty"),
        (
            {"tool_choice": allowed("auto", "f"), "tools": [TIME]},
            "tool_choice.allowed_tools.tools[0].function.name",
            "no tool 'f'",
        ),
        ({"tool_choice": allowed("none", "get-time_2"), "tools": [TIME]}, "tool_choice.allowed_tools.mode", "one of"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "expected boolean"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "got 'xml'"),
        ({"response_format": {}}, "response_format.type", "is required"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is required"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "response_format.json_schema.schema",
            "is required",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": nested(50)}}},
            "response_format.json_schema.schema",
            "nested too deeply",
        ),
        ({"response_format": {"type": "regex"}}, "response_format.pattern", "is required"),
        ({"response_format": {"type": "grammar", "grammar": ""}}, "response_format.grammar", "is required"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_refusals(fields: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode(**fields)
    assert (caught.value.status, caught.value.type, caught.value.param) == (400, "invalid_request_error", param)
    assert words in caught.value.message
