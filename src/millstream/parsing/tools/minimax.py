"""MiniMax. M1 puts one JSON object a line between ``<tool_calls>`` tags; M2 writes

<minimax:tool_call>
<invoke name="get_weather">
<parameter name="city">Paris</parameter>
</invoke>
</minimax:tool_call>
"""

from __future__ import annotations

from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.shared.marked_json import MarkedJson
from millstream.parsing.tools.shared.tagged import TaggedCalls, Tags

M2_TAGS = Tags(
    wrap=("<minimax:tool_call>", "</minimax:tool_call>"),
    call_open='<invoke name="',
    call_name_end='">',
    call_close="</invoke>",
    key_open='<parameter name="',
    key_ends={'">': None},
    key_close="</parameter>",
)

M1 = ToolFormat(
    name="minimax-m1",
    steps=lambda tools: MarkedJson(["<tool_calls>"], ["</tool_calls>"]).steps,
    detect=lambda source, tokens: "<tool_calls>" in source,
)
M2 = ToolFormat(
    name="minimax-m2",
    steps=lambda tools: TaggedCalls(M2_TAGS, tools).steps,
    detect=lambda source, tokens: "<minimax:tool_call>" in source,
)
