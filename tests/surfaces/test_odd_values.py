"""Values that no field expects, on every surface: a 400 that names the field, and never more than a few words of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from millstream.ir.errors import ApiError
from millstream.surfaces import (
    anthropic_messages,
    openai_chat,
    openai_completions,
    openai_embeddings,
    responses,
    texts,
)
from millstream.surfaces.anthropic_fields import MESSAGES_FIELDS
from millstream.surfaces.fields import FieldTable
from millstream.surfaces.openai_fields import CHAT_FIELDS, COMPLETION_FIELDS, EMBEDDING_FIELDS
from millstream.surfaces.responses.fields import RESPONSES_FIELDS
from millstream.surfaces.wire import Limits

TURN = {"role": "user", "content": "hi"}
LIMITS = Limits()

SURFACES: dict[str, tuple[Callable[[bytes], Any], FieldTable, dict[str, Any]]] = {
    "chat": (openai_chat.decode, CHAT_FIELDS, {"messages": [TURN]}),
    "completions": (openai_completions.decode, COMPLETION_FIELDS, {"prompt": "hi"}),
    "messages": (anthropic_messages.decode, MESSAGES_FIELDS, {"messages": [TURN], "max_tokens": 1}),
    "count": (anthropic_messages.decode_count, MESSAGES_FIELDS, {"messages": [TURN]}),
    "responses": (responses.decode, RESPONSES_FIELDS, {"input": "hi"}),
    "embeddings": (openai_embeddings.decode, EMBEDDING_FIELDS, {"input": "hi"}),
    "tokenize": (lambda body: texts.decode_tokenize(body, LIMITS), texts.TOKENIZE_FIELDS, {"prompt": "hi"}),
    "detokenize": (texts.decode_detokenize, texts.DETOKENIZE_FIELDS, {"tokens": [1]}),
    "template": (lambda body: texts.decode_template(body, LIMITS), texts.TEMPLATE_FIELDS, {"messages": [TURN]}),
}
FIELDS = [(surface, name) for surface, (_, table, _) in SURFACES.items() for name in table]


def body_of(surface: str, name: str, value: str) -> bytes:
    """A good body, but for one field whose JSON is ``value``."""
    rest = {"model": "m", **SURFACES[surface][2]}
    rest.pop(name, None)
    members = [f"{json.dumps(key)}:{json.dumps(member)}" for key, member in rest.items()]
    return ("{" + ",".join([*members, f"{json.dumps(name)}:{value}"]) + "}").encode()


def problem(surface: str, name: str, value: str) -> ApiError | None:
    try:
        SURFACES[surface][0](body_of(surface, name, value))
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize("value", ["1e400", "[1e400]", "9" * 400, '{"a":-1e999}'])
@pytest.mark.parametrize(("surface", "name"), FIELDS)
def test_numbers_beyond_every_range(surface: str, name: str, value: str) -> None:
    error = problem(surface, name, value)
    if error is not None:
        assert error.status == 400
        assert (error.param or "").startswith(name), error.message
        assert name in error.message


@pytest.mark.parametrize("surface", SURFACES)
def test_a_refused_field_is_refused_whatever_it_holds(surface: str) -> None:
    for name, field in SURFACES[surface][1].items():
        if field.status == "refused":
            for value in ("1e400", "9" * 400, '"' + "x" * 5000 + '"', "[" * 500 + "]" * 500):
                error = problem(surface, name, value)
                assert error is not None
                assert (error.param, error.code) == (name, "unsupported_parameter")


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("name", ["x" * 100_000, "é" * 100_000])
def test_an_error_does_not_repeat_a_long_name(surface: str, name: str) -> None:
    error = problem(surface, name, "1")
    assert error is not None
    assert error.code == "unknown_parameter"
    assert len(error.message) <= 1000
    assert 1 <= len(error.param or "") < 500
    assert name.startswith(error.param or "")


@pytest.mark.parametrize(("surface", "name"), FIELDS)
def test_an_error_does_not_repeat_a_long_value(surface: str, name: str) -> None:
    error = problem(surface, name, '"' + "x" * 100_000 + '"')
    if error is not None:
        assert len(error.message) <= 1000
        assert len(error.param or "") < 500


PYTHONS = re.compile(r"\b(expected|got|\|) (str|int|float|bool|list|dict|none)\b", re.IGNORECASE)
"""The words of the implementation's language for what JSON calls otherwise."""


@pytest.mark.parametrize("value", ["true", "7", "1.5", '"text"', "[]", "[true]", "{}", '[{"role":1}]', '{"a":[1]}'])
@pytest.mark.parametrize(("surface", "name"), FIELDS)
def test_errors_of_types_speak_of_json(surface: str, name: str, value: str) -> None:
    error = problem(surface, name, value)
    assert error is None or not PYTHONS.search(error.message), error.message


@pytest.mark.parametrize(
    ("surface", "name", "value", "message"),
    [
        ("chat", "temperature", '"hot"', "temperature: expected number, got string."),
        ("chat", "messages", "true", "messages: expected array, got boolean."),
        ("chat", "stop", "{}", "stop: expected string | array, got object."),
        ("chat", "top_k", "1.5", "top_k: expected integer, got number."),
        ("completions", "max_tokens", "[]", "max_tokens: expected integer, got array."),
        ("messages", "system", "3", "system: expected string | array, got integer."),
        ("responses", "store", '"x"', "store: expected boolean, got string."),
        ("embeddings", "input", "3", "input: expected string | array, got integer."),
        ("embeddings", "input", '[[1], "a"]', "input[1]: expected an array of token ids, as the first entry is one."),
        ("detokenize", "tokens", '["a"]', "tokens[0]: expected integer, got string."),
    ],
)
def test_the_words_are_those_of_json(surface: str, name: str, value: str, message: str) -> None:
    error = problem(surface, name, value)
    assert error is not None
    assert error.message == message
