"""Hermes, and most models after it (Qwen 2.5 and 3, SmolLM 3, Granite 4, …):

<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>
"""

from __future__ import annotations

from collections.abc import Collection

from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.shared.marked_json import MarkedJson

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


def detect(source: str, tokens: Collection[str]) -> bool:
    return OPEN in source and "<function=" not in source and "<arg_key>" not in source


FORMAT = ToolFormat(
    name="hermes",
    steps=lambda tools: MarkedJson([OPEN], [CLOSE]).steps,
    detect=detect,
)
