"""Phi-4-mini: ``<|tool_call|>[{"name": …, "arguments": {…}}]<|/tool_call|>``, with or without the list, or, as some
prompts ask of it, ``functools[{"name": …, "arguments": {…}}]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.marked_json import MarkedJson

OPEN = "<|tool_call|>"
CLOSE = "<|/tool_call|>"
FUNCTOOLS = "functools["


def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Its grammar."""
    lark = grammar.json_list("rest", tools, parallel=parallel)
    openings = {OPEN: f"rest {grammar.marker(CLOSE, control_tokens)}", FUNCTOOLS: "list"}
    return grammar.answer(openings, lark, control_tokens, required=required, parallel=False)


FORMAT = ToolFormat(
    name="phi4",
    steps=lambda tools: MarkedJson([OPEN, FUNCTOOLS], [CLOSE]).steps,
    constrain=constrain,
    detect=lambda source, tokens: CLOSE in source or "functools" in source or "<|/tool|>" in source,
)
