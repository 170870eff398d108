"""Hermes, and most models after it (Qwen 2.5 and 3, SmolLM 3, Granite 4, …):

<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.marked_json import MarkedJson

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


def detect(source: str, tokens: Collection[str]) -> bool:
    return OPEN in source and "<function=" not in source and "<arg_key>" not in source


def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Its grammar."""
    calls = grammar.rules("call", tools, grammar.json_call)
    rest = f"rest: ws call ws {grammar.marker(CLOSE, control_tokens)}"
    return grammar.answer(OPEN, f"{calls}\n{rest}", control_tokens, required=required, repeat=parallel)


FORMAT = ToolFormat(
    name="hermes",
    steps=lambda tools: MarkedJson([OPEN], [CLOSE]).steps,
    detect=detect,
    constrain=constrain,
)
