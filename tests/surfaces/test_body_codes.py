"""What is wrong with a body has the same code on every surface."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.ir.errors import ApiError
from millstream.surfaces import anthropic_messages, openai_chat, openai_completions, openai_embeddings, responses, texts
from millstream.surfaces.wire import Limits

DECODERS = {
    "chat": openai_chat.decode,
    "completions": openai_completions.decode,
    "embeddings": openai_embeddings.decode,
    "responses": responses.decode,
    "messages": anthropic_messages.decode,
    "count_tokens": anthropic_messages.decode_count,
    "tokenize": lambda body: texts.decode_tokenize(body, Limits()),
    "detokenize": texts.decode_detokenize,
    "apply-template": lambda body: texts.decode_template(body, Limits()),
}
DEEP: dict[str, Any] = {}
for _ in range(Limits().schema_depth):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
MESSAGES = {**CHAT, "max_tokens": 1}
RESPONSES = {"model": "m", "input": "hi"}
TEXT = {"type": "string"}


def refusal(surface: str, body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        DECODERS[surface](body)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("surface", DECODERS)
@pytest.mark.parametrize("body", [b'{"model": "\xff"}', b"\xfe\xff", b"{", b"", b'{"user":' + b"[" * 100_000])
def test_what_is_no_json_has_one_code(surface: str, body: bytes) -> None:
    assert refusal(surface, body).code == "invalid_json"


@pytest.mark.parametrize("schema", [DEEP, TEXT], ids=["deep", "no object"])
@pytest.mark.parametrize(
    ("surface", "base", "tool"),
    [
        ("chat", CHAT, lambda schema: {"type": "function", "function": {"name": "f", "parameters": schema}}),
        ("apply-template", CHAT, lambda schema: {"type": "function", "function": {"name": "f", "parameters": schema}}),
        ("responses", RESPONSES, lambda schema: {"type": "function", "name": "f", "parameters": schema}),
        ("messages", MESSAGES, lambda schema: {"name": "f", "input_schema": schema}),
    ],
)
def test_parameters_that_cannot_be_a_schema_are_an_invalid_schema(
    surface: str, base: dict[str, Any], tool: Any, schema: dict[str, Any]
) -> None:
    error = refusal(surface, json.dumps({**base, "tools": [tool(schema)]}).encode())
    assert error.code == "invalid_schema", error.message
    assert (error.param or "").startswith("tools")


@pytest.mark.parametrize(
    ("surface", "fields"),
    [
        ("chat", {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": DEEP}}}),
        ("responses", {**RESPONSES, "text": {"format": {"type": "json_schema", "name": "n", "schema": DEEP}}}),
        ("messages", {**MESSAGES, "output_config": {"format": {"type": "json_schema", "schema": DEEP}}}),
    ],
)
def test_a_format_that_is_too_deep_is_an_invalid_schema(surface: str, fields: dict[str, Any]) -> None:
    error = refusal(surface, json.dumps(fields).encode())
    assert error.code == "invalid_schema", error.message
