"""Mistral. Tokenizers up to v7 write a list, later ones the name and the arguments, with an id in some versions:

    [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "D681PevKs"}]
    [TOOL_CALLS]get_weather[CALL_ID]D681PevKs[ARGS]{"city": "Paris"}

An id that comes behind the arguments is not reported: the call has started by then.
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
from millstream.parsing.tools.shared.marked_json import marked_calls
from millstream.parsing.tools.shared.outer import text_and_calls

CALLS = "[TOOL_CALLS]"

_CALLS = Markers([CALLS])
_ID = Markers(["[CALL_ID]"])
_ARGS = Markers(["[ARGS]"])
_NOTHING = Markers(())
_NAME = re.compile(r"[^\s\[\]{}\"]*")


def _parser(scanner: Scanner) -> Steps[None]:
    return text_and_calls(scanner, _CALLS, _NOTHING, lambda marker: _calls(scanner, marker))


def _calls(scanner: Scanner, marker: str) -> Steps[bool]:
    marker += yield from scanner.space()
    if (yield from scanner.peek()) in {"[", "{"}:
        yield from marked_calls(scanner, marker, _CALLS, _NOTHING)
    else:
        yield from _named_call(scanner)
    return False


def _named_call(scanner: Scanner) -> Steps[None]:
    """From the name to the end of the arguments."""
    name = yield from scanner.run(_NAME)
    id: str | None = None
    if (yield from scanner.accept(_ID)) is not None:
        id = yield from scanner.run(_NAME)
    marked = (yield from scanner.accept(_ARGS)) is not None
    yield from scanner.space()
    if not name or not (marked or (yield from scanner.peek()) == "{"):
        scanner.reject()
        return
    scanner.start_call(name, id or None)
    if (yield from scanner.peek()) == "{":
        yield from json_value(scanner, scanner.args, _CALLS)
    else:
        scanner.args("{}")
    scanner.end_call()


def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Its grammar."""
    if "[ARGS]" not in control_tokens:
        lark = grammar.json_list("rest", tools, parallel=parallel)
        return grammar.answer({CALLS: "rest"}, lark, control_tokens, required=required, parallel=False)
    separator = grammar.marker("[ARGS]", control_tokens)
    calls = grammar.rules(
        "rest", tools, lambda tool: f"{grammar.quoted(tool.name)} {separator} {grammar.arguments(tool)}"
    )
    return grammar.answer({CALLS: "rest"}, calls, control_tokens, required=required, parallel=parallel)


FORMAT = ToolFormat(
    name="mistral",
    steps=lambda tools: _parser,
    constrain=constrain,
    detect=lambda source, tokens: "[TOOL_CALLS]" in source or "[TOOL_CALLS]" in tokens,
)
