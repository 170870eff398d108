"""MiniMax. M1 puts one JSON object a line between ``<tool_calls>`` tags; M2 writes

<minimax:tool_call>
<invoke name="get_weather">
<parameter name="city">Paris</parameter>
</invoke>
</minimax:tool_call>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.shared import grammar
from millstream.parsing.tools.shared.marked_json import MarkedJson
from millstream.parsing.tools.shared.tagged import TaggedCalls, Tags
from millstream.parsing.tools.shared.tagged_grammar import tagged_grammar

M1_TAGS = ("<tool_calls>", "</tool_calls>")

M2_TAGS = Tags(
    wrap=("<minimax:tool_call>", "</minimax:tool_call>"),
    call_open='<invoke name="',
    call_name_end='">',
    call_close="</invoke>",
    key_open='<parameter name="',
    key_ends={'">': None},
    key_close="</parameter>",
)


def constrain_m1(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
    """Grammar of M1."""
    more = " (ws call)*" if parallel else ""
    calls = grammar.rules("call", tools, grammar.json_call)
    lark = f"{calls}\nrest: ws call{more} ws {grammar.marker(M1_TAGS[1], control_tokens)}"
    return grammar.answer({M1_TAGS[0]: "rest"}, lark, control_tokens, required=required, parallel=False)


M1 = ToolFormat(
    name="minimax-m1",
    steps=lambda tools: MarkedJson(M1_TAGS[:1], M1_TAGS[1:]).steps,
    constrain=constrain_m1,
    detect=lambda source, tokens: "<tool_calls>" in source,
)
M2 = ToolFormat(
    name="minimax-m2",
    steps=lambda tools: TaggedCalls(M2_TAGS, tools).steps,
    constrain=tagged_grammar(M2_TAGS),
    detect=lambda source, tokens: "<minimax:tool_call>" in source,
)
