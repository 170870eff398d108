"""DeepSeek V3, R1 (first form) and V3.1 (second):

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Paris"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

One parser reads both, as distilled models mix them. V3.2 writes tags in its own namespace (``<｜DSML｜invoke …>``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.scan.json_text import json_value
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Steps
from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.outer import text_and_calls
from millstream.parsing.tools.shared.tagged import TaggedCalls, Tags
from millstream.parsing.tools.shared.tagged_grammar import tagged_grammar

CALLS_BEGIN = "<｜tool▁calls▁begin｜>"
CALLS_END = "<｜tool▁calls▁end｜>"
CALL_BEGIN = "<｜tool▁call▁begin｜>"
CALL_END = "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"

_OPENS = Markers([CALLS_BEGIN, CALL_BEGIN])
_ENDS = Markers([CALL_END, CALLS_END])
_CALL_BEGIN = Markers([CALL_BEGIN])
_SEPARATOR = Markers([SEPARATOR])
_FENCE_OPEN = Markers(["```json", "```"])
_FENCE_CLOSE = Markers(["```"])
_ARGUMENT_ENDS = Markers([CALL_END, CALLS_END, CALL_BEGIN, "```"])
_NAME = re.compile(r"[^\s<>{}`｜]*")


def _parser(scanner: Scanner) -> Steps[None]:
    return text_and_calls(scanner, _OPENS, _ENDS, lambda marker: _call(scanner, marker))


def _call(scanner: Scanner, marker: str) -> Steps[bool]:
    """From the type or the name to the call's end token. False: it is none."""
    if marker == CALLS_BEGIN:
        yield from scanner.space()
        yield from scanner.accept(_CALL_BEGIN)
    name = yield from scanner.run(_NAME)
    separated = (yield from scanner.accept(_SEPARATOR)) is not None
    if name == "function" and separated and (yield from scanner.peek()) not in {"{", "\n"}:
        name = yield from scanner.run(_NAME)
    yield from scanner.space()
    if not separated or not name or (scanner.at_edge and scanner.closed):
        scanner.reject()
        return False
    scanner.start_call(name)
    yield from scanner.accept(_FENCE_OPEN)
    yield from scanner.space()
    if (yield from scanner.peek()) == "{":
        yield from json_value(scanner, scanner.args, _ARGUMENT_ENDS)
    else:
        scanner.args("{}")
    scanner.end_call()
    yield from scanner.space()
    if (yield from scanner.accept(_FENCE_CLOSE)) is not None:
        yield from scanner.space()
    yield from scanner.accept(_ENDS)
    return True


def constrain_v3(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Grammar of the first form."""
    fence = '"\\n```json\\n"', '"\\n```"'
    return _grammar(tools, '"function"', fence, required, parallel, control_tokens)


def constrain_v31(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Grammar of the second form."""
    return _grammar(tools, "", ("", ""), required, parallel, control_tokens)


def _grammar(
    tools: Sequence[Tool],
    type_: str,
    fence: tuple[str, str],
    required: bool,
    parallel: bool,
    control_tokens: Mapping[str, int],
) -> str:
    begin, end, separator, calls_end = (
        grammar.marker(text, control_tokens) for text in (CALL_BEGIN, CALL_END, SEPARATOR, CALLS_END)
    )

    def body(tool: Tool) -> str:
        name = grammar.quoted(tool.name)
        head = f"{type_} {separator} {name}" if type_ else f"{name} {separator}"
        return f"{head} {fence[0]} {grammar.arguments(tool)} {fence[1]} {end}"

    more = " (ws call)*" if parallel else ""
    calls = [
        grammar.rules("body", tools, body),
        f"call: {begin} body",
        f"rest: ws call{more} ws {calls_end}",
    ]
    openings = {CALLS_BEGIN: "rest", CALL_BEGIN: "body"}
    return grammar.answer(openings, "\n".join(calls), control_tokens, required=required, parallel=False)


_DSML_TAGS = Tags(
    wrap=("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    call_open='<｜DSML｜invoke name="',
    call_name_end='">',
    call_close="</｜DSML｜invoke>",
    key_open='<｜DSML｜parameter name="',
    key_ends={'" string="true">': True, '" string="false">': False, '">': None},
    key_close="</｜DSML｜parameter>",
)

V3 = ToolFormat(
    name="deepseek-v3",
    steps=lambda tools: _parser,
    constrain=constrain_v3,
    detect=lambda source, tokens: CALLS_BEGIN in source and "```json" in source,
)
V31 = ToolFormat(
    name="deepseek-v3.1",
    steps=lambda tools: _parser,
    constrain=constrain_v31,
    detect=lambda source, tokens: CALLS_BEGIN in source,
)
V32 = ToolFormat(
    name="deepseek-v3.2",
    constrain=tagged_grammar(_DSML_TAGS),
    steps=lambda tools: TaggedCalls(_DSML_TAGS, tools).steps,
    detect=lambda source, tokens: "｜DSML｜" in source,
)
