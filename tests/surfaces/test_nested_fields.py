"""Members of option objects that nobody knows are refused by name, as fields are: a slip must not lose an option."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.ir.errors import ApiError
from millstream.surfaces import anthropic_messages, openai_chat, responses

USER = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object"}
NAMED = {"name": "a", "description": "b", "schema": SCHEMA}
CASES: list[tuple[Any, dict[str, Any], str]] = [
    (openai_chat, {"stream_options": {"include_usages": True}, "stream": True}, "stream_options.include_usages"),
    (openai_chat, {"response_format": {"type": "json_object", "shema": SCHEMA}}, "response_format.shema"),
    (
        openai_chat,
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "stric": True}}},
        "response_format.json_schema.stric",
    ),
    (responses, {"text": {"fromat": {"type": "json_object"}}}, "text.fromat"),
    (responses, {"text": {"format": {"type": "json_object", "nam": "a"}}}, "text.format.nam"),
    (responses, {"reasoning": {"efort": "low"}}, "reasoning.efort"),
    (anthropic_messages, {"thinking": {"type": "enabled", "budget": 1024}}, "thinking.budget"),
    (anthropic_messages, {"output_config": {"formt": {"type": "json_schema"}}}, "output_config.formt"),
    (
        anthropic_messages,
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA, "name": "a"}}},
        "output_config.format.name",
    ),
]
KNOWN: list[tuple[Any, dict[str, Any]]] = [
    (openai_chat, {"response_format": {"type": "json_schema", "json_schema": NAMED}}),
    (responses, {"text": {"verbosity": "low"}, "reasoning": {"context": "auto", "mode": "standard", "effort": "low"}}),
    (anthropic_messages, {"output_config": {"effort": "low", "task_budget": {"type": "tokens", "total": 9}}}),
    (anthropic_messages, {"thinking": {"type": "adaptive", "display": "summarized"}}),
]


def body(surface: Any, fields: dict[str, Any]) -> bytes:
    said = {"input": "hi"} if surface is responses else {"messages": USER}
    limit = {"max_tokens": 2048} if surface is anthropic_messages else {}
    return json.dumps({"model": "m", **said, **limit, **fields}).encode()


@pytest.mark.parametrize(("surface", "fields", "param"), CASES, ids=[case[2] for case in CASES])
def test_unknown_members_are_refused_by_name(surface: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        surface.decode(body(surface, fields))
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, param, "unknown_parameter")


@pytest.mark.parametrize(("surface", "fields"), KNOWN)
def test_members_that_the_sdks_know_pass(surface: Any, fields: dict[str, Any]) -> None:
    assert surface.decode(body(surface, fields)).request.model == "m"
