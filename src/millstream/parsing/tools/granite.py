"""Granite 3: a list of JSON objects behind a token that is not closed (Granite 4 writes hermes calls):

    <|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]

The 20B function-calling model writes ``<function_call> {…}`` for each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.marked_json import MarkedJson

OPENS = ("<|tool_call|>", "<function_call>", "<tool_call>")
CLOSES = ("</tool_call>", "</function_call>")


def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Its grammar."""
    lark = grammar.json_list("rest", tools, parallel=parallel)
    openings = dict.fromkeys(OPENS, "rest")
    return grammar.answer(openings, lark, control_tokens, required=required, parallel=False)


FORMAT = ToolFormat(
    name="granite",
    steps=lambda tools: MarkedJson(OPENS, CLOSES).steps,
    constrain=constrain,
    detect=lambda source, tokens: (
        "<function_call>" in source
        or ("<|tool_call|>" in source and "<|/tool_call|>" not in source and "<|start_of_role|>" in source)
    ),
)
