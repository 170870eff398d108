"""Llama 3.1 to 3.3: one JSON object as the whole answer, several separated by ``;``, also behind ``<|python_tag|>``:

    {"name": "get_weather", "parameters": {"city": "Paris"}}

Without the tag only the beginning of the answer can be a call, and only of a declared tool: anything else may be an
answer in JSON. What stands behind the tag and is no call (code) is text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Steps
from millstream.parsing.tools.format import Toolbox, ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.marked_json import bare_calls, marked_calls
from millstream.parsing.tools.shared.outer import text_and_calls

TAG = "<|python_tag|>"

_TAG = Markers([TAG])
_NOTHING = Markers(())


def _parser(scanner: Scanner, tools: Toolbox) -> Steps[None]:
    if (yield from scanner.first(_TAG)) in {"{", "["}:
        yield from bare_calls(scanner, _TAG, _NOTHING, tools)
    yield from text_and_calls(scanner, _TAG, _NOTHING, lambda marker: marked_calls(scanner, marker, _TAG, _NOTHING))


def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Its grammar. In free text an answer that begins as a call is one."""
    more = ' (ws ";" ws call)*' if parallel else ""
    calls = f"calls: call{more}\n" + grammar.rules("call", tools, lambda tool: grammar.json_call(tool, "parameters"))
    if required:
        return grammar.whole(f"start: calls\n{calls}")
    tails = grammar.rules("tail", tools, lambda tool: grammar.json_tail(tool, "parameters"))
    bare = [grammar.bare_json("tail")]
    lark = f"{calls}\n{tails}"
    return grammar.answer({TAG: "ws calls"}, lark, control_tokens, required=False, parallel=parallel, bare=bare)


FORMAT = ToolFormat(
    name="llama3",
    steps=lambda tools: lambda scanner: _parser(scanner, tools),
    constrain=constrain,
    detect=lambda source, tokens: "<|python_tag|>" in source or ("<|eom_id|>" in tokens and '"parameters"' in source),
)
