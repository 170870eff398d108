"""Whatever a grammar allows, its format's parser reads as calls whose arguments the tool's schema allows.

Texts are drawn at random from the grammars, token by token, so they hold what no example would.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from millstream.ir.request import Tool
from millstream.parsing.reasoning.format import HARMONY, NONE, ReasoningFormat
from millstream.parsing.registry import TOOL_FORMATS, create_parser
from millstream.pipeline.grammar import Rule, compose, json_rule, lark_rule
from parsing.driver import Call, fold, run
from parsing.tools.sampled import Vocabulary

KINDS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "on": {"type": "boolean"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "code": {"type": "string", "pattern": "^[A-C]{2,4}$"},
        "short": {"type": "string", "minLength": 2, "maxLength": 3},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
        "box": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "k": {"const": "v"}},
            "required": ["x"],
            "additionalProperties": False,
        },
        "mix": {"type": ["integer", "string"]},
        "one": {"$ref": "#/$defs/tag"},
        "either": {
            "anyOf": [
                {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]},
                {"type": "string", "maxLength": 4},
            ]
        },
        "level": {"enum": [1, 2, "high", None]},
    },
    "required": ["city", "unit", "tags"],
    "additionalProperties": False,
    "$defs": {"tag": {"enum": ["a", "b</parameter>", "c d"]}},
}
NOTE = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = (Tool("every_kind", parameters=KINDS, strict=True), Tool("get_time"), Tool("note-it_2", parameters=NOTE))
OTHER = Tool("not_allowed", parameters=NOTE)
WORDS = (*(tool.name for tool in (*TOOLS, OTHER)), *KINDS["properties"], "text", "celsius", "true", "null", "True")
HEADERS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>")
CONTROL: dict[str, Sequence[str]] = {
    "harmony": HEADERS,
    "gemma4": ("<|tool_call>", "<tool_call|>", '<|"|>'),
    "glm": ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "pythonic": ("<|python_start|>", "<|python_end|>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "llama3": ("<|python_tag|>",),
    "hermes": ("<tool_call>", "</tool_call>"),
    "qwen3-coder": ("<tool_call>", "</tool_call>"),
}
SEEDS = range(6)
VARIANTS = [(name, ()) for name in TOOL_FORMATS if name != "harmony"] + list(CONTROL.items())

formats = pytest.mark.parametrize(
    ("format", "control"), VARIANTS, ids=[name + (" tokens" if control else "") for name, control in VARIANTS]
)


def drawn(vocabulary: Vocabulary, format: str, calls: Rule | None, response: Rule | None = None) -> list[list[Any]]:
    """What the parser makes of texts of a grammar."""
    harmony = format == "harmony"
    reasoning: ReasoningFormat = HARMONY if harmony else NONE
    text = compose(calls, response, reasoning, "none", vocabulary.control)
    likes = {" ": 0.3, "<tool_call>": 9.0, "```json": 6.0, '{"name': 4.0, "{": 3.0, "analysis": 9.0}
    found = []
    for seed in SEEDS:
        ids = vocabulary.draw(text, seed, likes=likes)
        if ids is not None:
            parser = create_parser(format, "harmony" if harmony else "none", (*TOOLS, OTHER))
            found.append(fold(run(parser, vocabulary.pieces(ids))))
    assert found
    return found


def check(call: Call) -> None:
    tool = next(tool for tool in TOOLS if tool.name == call.name)
    assert call.complete
    Draft202012Validator(tool.parameters or {}).validate(json.loads(call.arguments))


def rule(format: str, vocabulary: Vocabulary, *, required: bool) -> Rule:
    lark = TOOL_FORMATS[format].constraint(TOOLS, required=required, control_tokens=vocabulary.control)
    assert lark is not None
    return lark_rule(lark)


@formats
def test_a_required_answer_is_calls(format: str, control: Sequence[str]) -> None:
    vocabulary = Vocabulary(WORDS, control)
    for items in drawn(vocabulary, format, rule(format, vocabulary, required=True)):
        calls = [item for item in items if isinstance(item, Call)]
        assert calls
        assert not any(isinstance(item, str) and item.strip() for item in items)
        for call in calls:
            check(call)


@formats
def test_calls_in_free_text_are_held_too(format: str, control: Sequence[str]) -> None:
    vocabulary = Vocabulary(WORDS, control)
    for items in drawn(vocabulary, format, rule(format, vocabulary, required=False)):
        for call in items:
            if isinstance(call, Call):
                check(call)


def test_harmony_holds_its_final_message() -> None:
    vocabulary = Vocabulary(WORDS, HEADERS)
    for items in drawn(vocabulary, "harmony", None, json_rule(NOTE)):
        texts = [item for item in items if isinstance(item, str)]
        assert not any(isinstance(item, Call) for item in items)
        Draft202012Validator(NOTE).validate(json.loads("".join(texts)))
