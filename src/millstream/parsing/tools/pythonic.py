"""Calls as a list in Python's notation (Llama 3.2 and 4, LFM2, OLMo 3, ToolACE, …):

    [get_weather(city="Paris"), get_time(zone="CET")]

Behind a marker (``<|python_start|>``, ``<|tool_call_start|>``, ``<function_calls>``) any name is a call; without one
only the beginning of the answer can be, and only a list of declared tools. Llama 4 is taught JSON objects as well, so
``{"name": …, "parameters": {…}}`` is read in both places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Steps
from millstream.parsing.tools.format import Toolbox, ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.json_call import any_name
from millstream.parsing.tools.shared.marked_json import bare_calls, marked_calls
from millstream.parsing.tools.shared.outer import text_and_calls
from millstream.parsing.tools.shared.python_calls import python_calls
from millstream.parsing.tools.shared.python_grammar import bare_list, python_rules

_MARKERS = {
    "<|python_start|>": "<|python_end|>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<function_calls>": "</function_calls>",
}
_CLOSES = Markers(_MARKERS.values())
_OPENS = Markers(_MARKERS)
_STOPS = Markers([*_MARKERS, *_MARKERS.values()])


def _parser(scanner: Scanner, tools: Toolbox) -> Steps[None]:
    first = yield from scanner.first(_OPENS)
    if first == "{":
        yield from bare_calls(scanner, _STOPS, _CLOSES, tools)
    elif first == "[":
        scanner.in_call = True
        yield from python_calls(scanner, "", _CLOSES, tools, tools.__contains__)
        scanner.in_call = False
    yield from text_and_calls(scanner, _OPENS, _CLOSES, lambda marker: _calls(scanner, marker, tools))


def _calls(scanner: Scanner, marker: str, tools: Toolbox) -> Steps[bool]:
    marker += yield from scanner.space()
    if (yield from scanner.peek()) == "{":
        return (yield from marked_calls(scanner, marker, _STOPS, _CLOSES))
    return (yield from python_calls(scanner, marker, _CLOSES, tools, any_name))


def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Its grammar: a list of calls, behind the marker that the tokenizer has, if it has one."""
    listed = list(tools)
    lark = [python_rules(listed, parallel=parallel)]
    known = next((marker for marker in _MARKERS if marker in control_tokens), None)
    if required and known is None:
        return grammar.whole("start: calls\n" + lark[0])
    order = sorted(_MARKERS, key=lambda marker: marker != known)
    openings = {marker: f"ws calls ws {grammar.marker(_MARKERS[marker], control_tokens)}" for marker in order}
    bare: tuple[grammar.Bare, ...] = ()
    if not required:
        lark.append(grammar.rules("tail", tools, lambda tool: grammar.json_tail(tool, "parameters")))
        bare = grammar.bare_json("tail"), bare_list(listed)
    return grammar.answer(openings, "\n".join(lark), control_tokens, required=required, parallel=False, bare=bare)


FORMAT = ToolFormat(
    name="pythonic",
    constrain=constrain,
    steps=lambda tools: lambda scanner: _parser(scanner, tools),
    detect=lambda source, tokens: (
        any(marker in source or marker in tokens for marker in _MARKERS)
        or "[func_name1(params_name1=params_value1" in source
    ),
)
