"""The grammars, run by llguidance over a tokenizer of single bytes with control tokens."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

import llguidance
import pytest

from millstream.ir.request import Tool
from millstream.parsing.registry import TOOL_FORMATS, create_parser
from parsing.driver import TOOLS, Call, fold, run, with_special

CONTROL = [
    *("<|tool_call|>", "<|/tool_call|>", "[TOOL_CALLS]", "[ARGS]"),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
    ),
]
IDS = {name: 257 + index for index, name in enumerate(CONTROL)}


class Bytes:
    """What llguidance asks of a tokenizer."""

    eos_token_id = 256
    bos_token_id = None
    tokens = [bytes([value]) for value in range(256)] + [b"<eos>"] + [name.encode() for name in CONTROL]
    special_token_ids = tuple(range(256, 257 + len(CONTROL)))

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))


def matches(lark: str, text: str, control: Collection[str]) -> bool:
    matcher = llguidance.LLMatcher(TOKENIZER, llguidance.LLMatcher.grammar_from_lark(lark))
    assert not matcher.is_error(), matcher.get_error()
    ids: list[int] = []
    for piece in with_special(text, sorted(control)) if control else []:
        ids += [IDS[piece.text]] if piece.special else list(piece.text.encode())
    ids = ids or list(text.encode())
    return matcher.try_consume_tokens(ids) == len(ids) and bool(matcher.is_accepting())


def weather(arguments: str, name: str = "get_weather", key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {arguments}}}'


def written(format: str, calls: Sequence[tuple[str, str]], control: Collection[str]) -> str:
    """Calls as the format writes them."""
    objects = [weather(arguments, name) for name, arguments in calls]
    match format:
        case "hermes" | "generic":
            return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in objects)
        case "granite":
            return f"<|tool_call|>[{', '.join(objects)}]"
        case "phi4":
            return f"<|tool_call|>[{', '.join(objects)}]<|/tool_call|>"
        case "llama3":
            return "; ".join(weather(arguments, name, "parameters") for name, arguments in calls)
        case "mistral" if "[ARGS]" in control:
            return "".join(f"[TOOL_CALLS]{name}[ARGS]{arguments}" for name, arguments in calls)
        case "mistral":
            return f"[TOOL_CALLS][{', '.join(objects)}]"
    fence = ("function<｜tool▁sep｜>{}\n```json\n", "\n```") if format == "deepseek-v3" else ("{}<｜tool▁sep｜>", "")
    body = "".join(
        f"<｜tool▁call▁begin｜>{fence[0].format(name)}{arguments}{fence[1]}<｜tool▁call▁end｜>"
        for name, arguments in calls
    )
    return f"<｜tool▁calls▁begin｜>{body}<｜tool▁calls▁end｜>"


WITH_GRAMMAR = sorted(name for name, format in TOOL_FORMATS.items() if format.constrain is not None)
GOOD = ("get_weather", '{"city": "Zürich \\"</tool_call>\\"", "days": 3}')
TIME = ("get_time", "{}")
BAD = [
    ("get_weather", '{"city": 3}'),
    ("get_weather", "{}"),
    ("get_weather", '{"city": "x", "days": "three"}'),
    ("no_such_tool", "{}"),
]

each = pytest.mark.parametrize("format", WITH_GRAMMAR)
tokens = pytest.mark.parametrize("control", [frozenset(), frozenset(CONTROL)], ids=["text", "tokens"])


def test_formats_that_have_one() -> None:
    assert [
        *("deepseek-v3", "deepseek-v3.1", "generic", "granite", "hermes", "llama3", "mistral", "phi4"),
    ] == WITH_GRAMMAR


def grammar(
    format: str, control: Collection[str], tools: Sequence[Tool] = TOOLS, *, required: bool = True, **options: object
) -> str:
    lark = TOOL_FORMATS[format].constraint(
        tools,
        required=required,
        control_tokens={name: IDS[name] for name in control},
        **options,  # type: ignore[arg-type]
    )
    assert lark is not None
    return lark


@each
@tokens
def test_required(format: str, control: frozenset[str]) -> None:
    lark = grammar(format, control)
    assert matches(lark, written(format, [GOOD], control), control)
    assert matches(lark, written(format, [GOOD, TIME, GOOD], control), control)
    assert not matches(lark, "", control)
    assert not matches(lark, "Hello", control)
    assert not matches(lark, "Hello " + written(format, [GOOD], control), control)
    assert not matches(lark, written(format, [GOOD], control)[:-1], control)
    for call in BAD:
        assert not matches(lark, written(format, [call], control), control), call


@each
@tokens
def test_one_call_only(format: str, control: frozenset[str]) -> None:
    lark = grammar(format, control, parallel=False)
    assert matches(lark, written(format, [GOOD], control), control)
    assert not matches(lark, written(format, [GOOD, TIME], control), control)


@each
@tokens
def test_named(format: str, control: frozenset[str]) -> None:
    lark = grammar(format, control, names=["get_time"])
    assert matches(lark, written(format, [TIME], control), control)
    assert not matches(lark, written(format, [GOOD], control), control)


@each
@tokens
def test_free_text_and_calls(format: str, control: frozenset[str]) -> None:
    if format == "llama3":
        assert TOOL_FORMATS[format].constraint(TOOLS, required=False) is None
        return
    lark = grammar(format, control, required=False)
    for text in ("", "Hello, [1] {2} <3>\n", "Sure.\n\n" + written(format, [GOOD, TIME], control)):
        assert matches(lark, text, control), text
    for call in BAD:
        assert not matches(lark, "Sure. " + written(format, [call], control), control), call


@each
@tokens
def test_parser_reads_what_the_grammar_allows(format: str, control: frozenset[str]) -> None:
    text = written(format, [GOOD, TIME], control)
    pieces = with_special(text, sorted(control)) if control else [text]
    assert fold(run(create_parser(format, "none", TOOLS), pieces)) == [Call(*GOOD), Call(*TIME)]


def test_names_and_schemas_that_need_care() -> None:
    name = 'q"u\\o/té'
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"]}
    lark = grammar("hermes", (), [Tool(name, parameters=schema)])
    text = f'<tool_call>{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {{"a": %s}}}}</tool_call>'
    assert matches(lark, text % "1", ())
    assert not matches(lark, text % '"x"', ())


def test_no_grammar() -> None:
    assert TOOL_FORMATS["pythonic"].constraint(TOOLS, required=True) is None
    assert TOOL_FORMATS["hermes"].constraint(TOOLS, required=True, names=["other"]) is None
