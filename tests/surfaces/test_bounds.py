"""What one request may hold, on every surface that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from millstream.ir.errors import ApiError
from millstream.surfaces import anthropic_messages, openai_chat, openai_completions, responses, texts
from millstream.surfaces.wire import Limits

LIMITS = Limits(messages=3, stop_token_ids=3)
TURN = {"role": "user", "content": "hi"}

Decode = Callable[[bytes, Limits], Any]

CONVERSATIONS: dict[str, tuple[Decode, str, dict[str, Any]]] = {
    "chat": (openai_chat.decode, "messages", {}),
    "messages": (anthropic_messages.decode, "messages", {"max_tokens": 5}),
    "count": (anthropic_messages.decode_count, "messages", {}),
    "responses": (responses.decode, "input", {}),
    "tokenize": (texts.decode_tokenize, "messages", {}),
    "template": (texts.decode_template, "messages", {}),
}
KWARGS = ["chat", "responses", "tokenize", "template"]


def refused(decode: Decode, body: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        decode(json.dumps({"model": "m", **body}).encode(), LIMITS)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("surface", CONVERSATIONS)
def test_the_number_of_messages_is_bounded(surface: str) -> None:
    decode, field, rest = CONVERSATIONS[surface]
    decode(json.dumps({"model": "m", field: [TURN] * 3, **rest}).encode(), LIMITS)
    error = refused(decode, {field: [TURN] * 4, **rest})
    assert error.param == field
    assert "3" in error.message
    assert "4" in error.message


def test_a_continued_response_counts_with_what_it_continues() -> None:
    parsed = responses.parse(json.dumps({"model": "m", "input": [TURN, TURN]}).encode())
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    responses.build(parsed, LIMITS, history=[item])
    with pytest.raises(ApiError, match="at most 3"):
        responses.build(parsed, LIMITS, history=[item, item])


@pytest.mark.parametrize(
    ("decode", "body"),
    [(openai_chat.decode, {"messages": [TURN]}), (openai_completions.decode, {"prompt": "hi"})],
)
def test_the_number_of_stop_tokens_is_bounded(decode: Decode, body: dict[str, Any]) -> None:
    assert refused(decode, {**body, "stop_token_ids": [1, 2, 3, 4]}).param == "stop_token_ids"


@pytest.mark.parametrize("name", ["self", "messages", "bos_token", "loop", "a b", "1a", "", "_x", "__class__", "class",
                                  "None", "raise_exception", "x" * 100 + "-"])  # fmt: skip
@pytest.mark.parametrize("surface", KWARGS)
def test_template_variables_have_names_that_a_template_can_read(surface: str, name: str) -> None:
    decode, field, rest = CONVERSATIONS[surface]
    error = refused(decode, {field: [TURN], "chat_template_kwargs": {name: 1}, **rest})
    assert error.param == f"chat_template_kwargs.{name[:64]}"
    assert "argument" not in error.message
