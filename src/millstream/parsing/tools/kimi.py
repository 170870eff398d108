"""Kimi K2 (tokens may be written with ``section`` or without):

    <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}
    <|tool_call_end|><|tool_calls_section_end|>

The id is the whole ``functions.get_weather:0``, and the model wants it back as such.
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

_SECTION = "<|tool_calls_section_begin|>"
_CALL = "<|tool_call_begin|>"
_OPENS = Markers([_SECTION, _CALL])
_CALL_OPEN = Markers([_CALL])
_ARGUMENT = "<|tool_call_argument_begin|>"
_CALL_END = "<|tool_call_end|>"
_SECTION_END = "<|tool_calls_section_end|>"
_ARGUMENTS = Markers([_ARGUMENT])
_ENDS = Markers([_CALL_END, _SECTION_END])
_ALL = Markers([*_OPENS.literals, *_ENDS.literals])
_ID = re.compile(r"[^\s<>{}]*")


def tool_name(id: str) -> str:
    """``get_weather`` of ``functions.get_weather:0``."""
    return re.sub(r":\d+\Z", "", id.removeprefix("functions."))


def _parser(scanner: Scanner) -> Steps[None]:
    return text_and_calls(scanner, _OPENS, _ENDS, lambda marker: _call(scanner, marker))


def _call(scanner: Scanner, marker: str) -> Steps[bool]:
    if marker == _SECTION:
        yield from scanner.space()
        yield from scanner.accept(_CALL_OPEN)
    yield from scanner.space()
    id = yield from scanner.run(_ID)
    yield from scanner.space()
    if not id or (yield from scanner.accept(_ARGUMENTS)) is None:
        scanner.reject()
        return False
    scanner.start_call(tool_name(id), id)
    yield from scanner.space()
    if (yield from scanner.peek()) == "{":
        yield from json_value(scanner, scanner.args, _ALL)
    else:
        scanner.args("{}")
    scanner.end_call()
    yield from scanner.space()
    yield from scanner.accept(_ENDS)
    return True


def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Its grammar."""
    argument, call_end, end = (grammar.marker(text, control_tokens) for text in (_ARGUMENT, _CALL_END, _SECTION_END))

    def body(tool: Tool) -> str:
        name = grammar.quoted(f"functions.{tool.name}:")
        return f"{name} /[0-9]{{1,4}}/ {argument} ws {grammar.arguments(tool)} ws {call_end}"

    call = f"{grammar.marker(_CALL, control_tokens)} body"
    more = f" (ws {call})*" if parallel else ""
    lark = f"{grammar.rules('body', tools, body)}\nrest: ws {call}{more} ws {end}"
    return grammar.answer({_SECTION: "rest", _CALL: "body"}, lark, control_tokens, required=required, parallel=False)


FORMAT = ToolFormat(
    name="kimi",
    steps=lambda tools: _parser,
    constrain=constrain,
    detect=lambda source, tokens: _CALL in source,
)
