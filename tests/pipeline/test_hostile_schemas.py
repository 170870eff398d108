"""Schemas that strangers send, on the formats that write parameters one by one: enforced, or refused by name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from millstream.ir.errors import ApiError
from millstream.ir.request import ChatRequest, Message, Tool, ToolChoice
from millstream.models.template import JinjaChatTemplate
from millstream.pipeline.checks import GrammarChecker
from millstream.pipeline.dialect import Dialect
from support.scripted_model import TinyTokenizer

Schema = dict[str, Any]


def one(schema: Schema, **shared: Schema) -> Schema:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **shared}


def wide(count: int) -> Schema:
    return {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(count)}, "required": ["p0"]}


def deep(levels: int) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(levels):
        schema = one(schema)
    return schema


DOUBLING = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": {"type": "string"}}
CIRCLE = {"x": {"anyOf": [{"$ref": "#/$defs/y"}, {"$ref": "#/$defs/x"}]}, "y": {"$ref": "#/$defs/x"}}

HELD = {
    "many tools": [wide(20)] * 120,
    "doubling": [one({"$ref": "#/$defs/d0"}, **{"$defs": DOUBLING})],
    "deep": [deep(40)],
    "itself": [{"type": "object", "properties": {"n": {"type": "array", "items": {"$ref": "#"}}}, "required": ["n"]}],
    "many values": [one({"enum": [f"v{n}" for n in range(2000)]})],
    "repeated pattern": [one({"type": "string", "pattern": "(a{1,500}){1,500}"})],
}
REFUSED = {
    "large": [wide(8000)],
    "broken pattern": [one({"type": "string", "pattern": "("})],
    "no such type": [one({"type": "strnig"})],
    "nothing": [one({"enum": []})],
}
EITHER = {
    "circle": [one({"$ref": "#/$defs/x"}, **{"$defs": CIRCLE})],
    "least length": [one({"type": "string", "minLength": 1_000_000})],
    "odd keywords": [{"type": "object", "properties": [1], "required": "a", "additionalProperties": 3, "$defs": 1}],
    "odd lists": [one({"type": "array", "minItems": -5, "maxItems": 1e9, "items": [1]})],
}
formats = pytest.mark.parametrize("format", ["qwen3-coder", "glm", "gemma4", "pythonic"])


def refusal(format: str, schemas: list[Schema]) -> ApiError | None:
    tools = tuple(Tool(f"tool{n}", parameters=schema) for n, schema in enumerate(schemas))
    template = JinjaChatTemplate("{{ messages[-1].content }}{% if tools %}{% endif %}")
    dialect = Dialect(template, TinyTokenizer(), tool_format=format, reasoning_format="none")
    asked = ChatRequest(
        model="tiny", messages=(Message("user", "hi"),), tools=tools, tool_choice=ToolChoice("required")
    )
    try:
        grammar = dialect.turn(asked).grammar
        assert grammar is not None
        asyncio.run(GrammarChecker(()).check(grammar))
    except ApiError as error:
        return error
    return None


@formats
@pytest.mark.parametrize("name", HELD)
def test_what_can_be_held_is(format: str, name: str) -> None:
    assert refusal(format, HELD[name]) is None


@formats
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_held_is_refused_by_name(format: str, name: str) -> None:
    error = refusal(format, REFUSED[name])
    assert error is not None
    assert (error.status, error.code) == (400, "invalid_schema")
    assert error.param in ("tools", "tools[0]")
    if name != "large":
        assert "'tool0'" in error.message


@formats
@pytest.mark.parametrize("name", EITHER)
def test_nothing_else_comes_of_odd_schemas(format: str, name: str) -> None:
    error = refusal(format, EITHER[name])
    assert error is None or (error.status, error.code) == (400, "invalid_schema")
