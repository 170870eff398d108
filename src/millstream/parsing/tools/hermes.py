"""Hermes, and most models after it (Qwen 2.5 and 3, SmolLM 3, Granite 4, …):

<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>

Small models, and those that were trained on code (Qwen2.5-Coder), leave the tags out, so the bare object is read too
where the answer begins with it, and in a code fence of JSON; both only as a call of a declared tool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Steps
from millstream.parsing.tools.format import Toolbox, ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.marked_json import bare_calls, marked_calls
from millstream.parsing.tools.shared.outer import text_and_calls

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

_FENCE = "```json"
_OPENS = Markers([OPEN, _FENCE])
_TAG_END = Markers([CLOSE])
_FENCE_END = Markers(["```"])
_CLOSES = Markers([CLOSE, "```"])
_STOPS = Markers([OPEN, CLOSE, "```"])


def parser(scanner: Scanner, tools: Toolbox) -> Steps[None]:
    """The whole output."""
    if (yield from scanner.first(_STOPS)) == "{":
        yield from bare_calls(scanner, _STOPS, _CLOSES, tools)
    yield from text_and_calls(scanner, _OPENS, _CLOSES, lambda marker: _calls(scanner, marker, tools))


def _calls(scanner: Scanner, marker: str, tools: Toolbox) -> Steps[bool]:
    if marker == OPEN:
        return (yield from marked_calls(scanner, marker, _STOPS, _TAG_END))
    return (yield from marked_calls(scanner, marker, _STOPS, _FENCE_END, tools))


def detect(source: str, tokens: Collection[str]) -> bool:
    return OPEN in source and "<function=" not in source and "<arg_key>" not in source


def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Its grammar."""
    calls = grammar.rules("call", tools, grammar.json_call)
    lines = [calls, f"rest: ws call ws {grammar.marker(CLOSE, control_tokens)}"]
    if not required:
        lines.append(grammar.rules("tail", tools, grammar.json_tail))
    return grammar.answer(
        {OPEN: "rest"},
        "\n".join(lines),
        control_tokens,
        required=required,
        parallel=parallel,
        bare=[grammar.bare_json("tail")],
        fences={_FENCE: grammar.bare_json('tail ws "```"')},
    )


FORMAT = ToolFormat(
    name="hermes",
    steps=lambda tools: lambda scanner: parser(scanner, tools),
    detect=detect,
    constrain=constrain,
)
