"""Arguments keep their meaning in every notation."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.ir.request import Tool
from millstream.parsing.registry import create_parser
from millstream.parsing.scan.json_text import StringDecoder
from millstream.parsing.tools.shared.arguments import json_for, json_types
from millstream.parsing.tools.shared.literals import atom_json
from parsing.driver import Call, fold, run

words = st.text(st.characters(codec="utf-8"), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))
objects = st.dictionaries(words, values, max_size=4)


def only_call(format: str, text: str, tools: tuple[Tool, ...] = (Tool("f"),), step: int = 3) -> Call:
    pieces = [text[start : start + step] for start in range(0, len(text), step)]
    items = fold(run(create_parser(format, "think", tools), pieces))
    assert len(items) == 1
    assert isinstance(items[0], Call)
    assert items[0].complete
    return items[0]


@settings(max_examples=40, deadline=None)
@given(objects, st.booleans(), st.sampled_from([None, 1]), st.integers(1, 9))
def test_json_is_passed_on_as_written(value: Any, ascii: bool, indent: int | None, step: int) -> None:
    arguments = json.dumps(value, ensure_ascii=ascii, indent=indent)
    for format, text in {
        "hermes": f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>',
        "mistral": f"[TOOL_CALLS]f[ARGS]{arguments}",
        "harmony": f" to=functions.f<|channel|>commentary<|message|>{arguments}<|call|>",
        "kimi": f"<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
    }.items():
        assert only_call(format, text, step=step).arguments == arguments


@settings(max_examples=40, deadline=None)
@given(objects, st.booleans(), st.integers(1, 9))
def test_double_encoded_json_is_decoded(value: Any, ascii: bool, step: int) -> None:
    arguments = json.dumps(value, ensure_ascii=False)
    encoded = json.dumps(arguments, ensure_ascii=ascii)
    call = only_call("hermes", f'<tool_call>{{"name": "f", "arguments": {encoded}}}</tool_call>', step=step)
    assert call.arguments == arguments


@given(words, st.integers(1, 7))
def test_string_decoder(value: str, step: int) -> None:
    for raw in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        decoder = StringDecoder()
        assert "".join(decoder.feed(raw[at : at + step]) for at in range(0, len(raw), step)) == value


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), values, max_size=3), st.integers(1, 9))
def test_python_literals_become_json(value: dict[str, Any], step: int) -> None:
    text = "[f(" + ", ".join(f"{key}={item!r}" for key, item in value.items()) + ")]"
    assert json.loads(only_call("pythonic", text, step=step).arguments) == value


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), words, max_size=3), st.integers(1, 9))
def test_strings_in_tags_are_kept_to_the_letter(value: dict[str, str], step: int) -> None:
    if any("<" in text for text in value.values()):
        return
    schema = {"properties": {key: {"type": "string"} for key in value}}
    tools = (Tool("f", parameters=schema),)
    qwen = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in value.items())
    glm = "".join(f"\n<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>" for key, text in value.items())
    minimax = "".join(f'<parameter name="{key}">{text}</parameter>\n' for key, text in value.items())
    for format, text in {
        "qwen3-coder": f"<tool_call>\n<function=f>\n{qwen}</function>\n</tool_call>",
        "glm": f"<tool_call>f{glm}\n</tool_call>",
        "minimax-m2": f'<minimax:tool_call>\n<invoke name="f">\n{minimax}</invoke>\n</minimax:tool_call>',
    }.items():
        assert json.loads(only_call(format, text, tools, step).arguments) == value


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "integer"}, "3", "3"),
        ({"type": "integer"}, " 3\n", "3"),
        ({"type": "integer"}, '"3"', '"3"'),
        ({"type": "integer"}, "three", '"three"'),
        ({"type": "number"}, "3", "3"),
        ({"type": "number"}, "NaN", '"NaN"'),
        ({"type": "boolean"}, "True", "true"),
        ({"type": "string"}, "3", '"3"'),
        ({"type": ["string", "integer"]}, "3", "3"),
        ({"type": ["string", "null"]}, "None", "null"),
        ({"type": ["string", "null"]}, "3", '"3"'),
        ({"type": ["string", "null"]}, '"x"', '"\\"x\\""'),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "[1]", "[1]"),
        ({"anyOf": [{"type": "string"}, {"$ref": "#/x"}]}, "[1]", "[1]"),
        ({"enum": ["1", "2"]}, "1", '"1"'),
        ({"enum": [1, 2]}, "1", "1"),
        ({"const": "x"}, "x", '"x"'),
        ({"type": "object"}, '{"a": [1, 2.50]}', '{"a": [1, 2.50]}'),
        ({"type": "object"}, "{'a': 1}", "\"{'a': 1}\""),
        ({}, "3", "3"),
        ({}, "text", '"text"'),
        (None, "9" * 5000, "9" * 5000),
        (True, "[" * 100_000, json.dumps("[" * 100_000)),
    ],
)
def test_parameters_by_schema(schema: Any, text: str, expected: str) -> None:
    assert json_for(text, json_types(schema)) == expected


@pytest.mark.parametrize("atom", ["1", "-1", "1.50", "1e5", "1_000", "0x1F", "+5", "5.", ".5", "True", "None"])
def test_atoms(atom: str) -> None:
    assert json.loads(atom_json(atom)) == ast.literal_eval(atom)


@pytest.mark.parametrize("atom", ["word", "1e999", "0x" + "f" * 9000, "a.b", "--", "1__0"])
def test_atoms_without_a_value_are_strings(atom: str) -> None:
    assert json.loads(atom_json(atom)) == atom or atom == "1e999"
