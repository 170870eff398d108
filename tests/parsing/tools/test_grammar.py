"""The grammars, run by llguidance over a tokenizer of single bytes with control tokens."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import llguidance
import pytest

from millstream.ir.request import Tool
from millstream.parsing.registry import TOOL_FORMATS, create_parser
from parsing.driver import TOOLS, Call, fold, run, with_special

CONTROL = [
    *("<|tool_call|>", "<|/tool_call|>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"),
    *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call>", "<tool_call|>", '<|"|>', "<|python_start|>", "<|python_end|>"),
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
        case "minimax-m1":
            return "<tool_calls>\n" + "\n".join(objects) + "\n</tool_calls>"
        case "llama3":
            return "; ".join(weather(arguments, name, "parameters") for name, arguments in calls)
        case "mistral" if "[ARGS]" in control:
            return "".join(f"[TOOL_CALLS]{name}[ARGS]{arguments}" for name, arguments in calls)
        case "mistral":
            return f"[TOOL_CALLS][{', '.join(objects)}]"
        case "kimi":
            body = "".join(
                f"<|tool_call_begin|>functions.{name}:{at}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
                for at, (name, arguments) in enumerate(calls)
            )
            return f"<|tool_calls_section_begin|>{body}<|tool_calls_section_end|>"
        case "deepseek-v3" | "deepseek-v3.1":
            v3 = format == "deepseek-v3"
            fence = ("function<｜tool▁sep｜>{}\n```json\n", "\n```") if v3 else ("{}<｜tool▁sep｜>", "")
            body = "".join(
                f"<｜tool▁call▁begin｜>{fence[0].format(name)}{arguments}{fence[1]}<｜tool▁call▁end｜>"
                for name, arguments in calls
            )
            return f"<｜tool▁calls▁begin｜>{body}<｜tool▁calls▁end｜>"
        case "harmony":
            ((name, arguments),) = calls
            return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}"
    parsed = [(name, json.loads(arguments)) for name, arguments in calls]
    return spelled(format, parsed, control)


def spelled(format: str, calls: Sequence[tuple[str, dict[str, Any]]], control: Collection[str]) -> str:
    """Calls in a format that writes parameters one by one."""

    def text(value: object) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    def tagged(frame: str, one: str) -> str:
        return "".join(
            frame.format(name, "".join(one.format(key, text(value)) for key, value in arguments.items()))
            for name, arguments in calls
        )

    match format:
        case "qwen3-coder" | "seed-oss":
            outer = "tool_call" if format == "qwen3-coder" else "seed:tool_call"
            one = "<parameter={}>\n{}\n</parameter>\n"
            return f"<{outer}>\n" + tagged("<function={}>\n{}</function>\n", one) + f"</{outer}>"
        case "minimax-m2":
            one = '<parameter name="{}">{}</parameter>\n'
            return "<minimax:tool_call>\n" + tagged('<invoke name="{}">\n{}</invoke>\n', one) + "</minimax:tool_call>"
        case "deepseek-v3.2":
            body = ""
            for name, arguments in calls:
                inner = "".join(
                    f'<｜DSML｜parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{text(value)}'
                    "</｜DSML｜parameter>\n"
                    for key, value in arguments.items()
                )
                body += f'<｜DSML｜invoke name="{name}">\n{inner}</｜DSML｜invoke>\n'
            return f"<｜DSML｜function_calls>\n{body}</｜DSML｜function_calls>"
        case "glm":
            one = "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n"
            return tagged("<tool_call>{}\n{}</tool_call>", one)
        case "pythonic" | "gemma":
            listed = []
            for name, arguments in calls:
                given = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items()]
                listed.append(f"{name}({', '.join(given)})")
            if format == "gemma":
                return "```tool_code\n" + "\n".join(listed) + "\n```"
            body = f"[{', '.join(listed)}]"
            return f"<|python_start|>{body}<|python_end|>" if control else body
    fourth = "<|tool_call>" in control
    opening, close = ("<|tool_call>", "<tool_call|>") if fourth else ("<start_function_call>", "<end_function_call>")
    quote = '<|"|>' if fourth else "<escape>"
    return "".join(
        f"{opening}call:{name}{{"
        + ",".join(
            f"{key}:{quote + value + quote if isinstance(value, str) else json.dumps(value)}"
            for key, value in arguments.items()
        )
        + f"}}{close}"
        for name, arguments in calls
    )


WITH_GRAMMAR = sorted(name for name, format in TOOL_FORMATS.items() if format.constrain is not None)
SEVERAL = [name for name in WITH_GRAMMAR if name != "harmony"]  # which hands over after one call
GOOD = ("get_weather", '{"city": "Zürich \\"</tool_call>\\"", "days": 3}')
TIME = ("get_time", "{}")
BAD_TYPE = ("get_weather", '{"city": 3}')  # where strings have no quotes, this is the city "3"
BARE_STRINGS = {"glm", "minimax-m2", "qwen3-coder", "seed-oss"}
BAD = [
    BAD_TYPE,
    ("get_weather", "{}"),
    ("get_weather", '{"city": "x", "days": "three"}'),
    ("no_such_tool", "{}"),
]

each = pytest.mark.parametrize("format", SEVERAL)
tokens = pytest.mark.parametrize("control", [frozenset(), frozenset(CONTROL)], ids=["text", "tokens"])


def test_every_format_has_one() -> None:
    assert sorted(TOOL_FORMATS) == WITH_GRAMMAR


def bad(format: str) -> list[tuple[str, str]]:
    return [call for call in BAD if call is not BAD_TYPE or format not in BARE_STRINGS]


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
    for call in bad(format):
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
    lark = grammar(format, control, required=False)
    alone = format == "llama3" or (format == "pythonic" and not control)  # calls that are the whole answer
    before = "" if alone else "Sure.\n\n"
    for text in ("", "Hello, [1] {2} <3>\n", before + written(format, [GOOD, TIME], control)):
        assert matches(lark, text, control), text
    for call in bad(format):
        assert not matches(lark, before + written(format, [call], control), control), call


def test_harmony() -> None:
    control = frozenset(CONTROL)
    required, free = (grammar("harmony", control, required=required) for required in (True, False))
    for lark in (required, free):
        assert matches(lark, written("harmony", [GOOD], control), control)
        for call in BAD:
            assert not matches(lark, written("harmony", [call], control), control), call
    role = " to=functions.get_time<|channel|>commentary json<|message|>{}"
    assert matches(required, role, control)
    final = "<|channel|>final<|message|>Hello."
    assert matches(free, final, control)
    assert matches(free, f"{final}<|end|><|start|>assistant{written('harmony', [TIME], control)}", control)
    assert not matches(free, final + "<|start|>assistant<|channel|>commentary to=functions.evil<|message|>{}", ())
    assert not matches(required, final, control)
    assert TOOL_FORMATS["harmony"].constraint(TOOLS, required=True) is None  # headers that are no control tokens


@each
@tokens
def test_parser_reads_what_the_grammar_allows(format: str, control: frozenset[str]) -> None:
    text = written(format, [GOOD, TIME], control)
    pieces = with_special(text, sorted(control)) if control else [text]
    calls = fold(run(create_parser(format, "none", TOOLS), pieces))
    assert [(call.name, json.loads(call.arguments)) for call in calls if isinstance(call, Call)] == [
        (name, json.loads(arguments)) for name, arguments in (GOOD, TIME)
    ]
    assert len(calls) == 2


def test_names_and_schemas_that_need_care() -> None:
    name = 'q"u\\o/té'
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"]}
    lark = grammar("hermes", (), [Tool(name, parameters=schema)])
    text = f'<tool_call>{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {{"a": %s}}}}</tool_call>'
    assert matches(lark, text % "1", ())
    assert not matches(lark, text % '"x"', ())


def test_no_grammar() -> None:
    assert TOOL_FORMATS["hermes"].constraint(TOOLS, required=True, names=["other"]) is None
