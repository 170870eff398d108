"""Qwen3-Coder (also Seed-OSS, Nemotron 3, …):

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Models often leave the outer tag out.
"""

from __future__ import annotations

from millstream.parsing.tools.format import ToolFormat
from millstream.parsing.tools.shared.tagged import TaggedCalls, Tags
from millstream.parsing.tools.shared.tagged_grammar import tagged_grammar


def _tags(outer: str) -> Tags:
    return Tags(
        wrap=(f"<{outer}>", f"</{outer}>"),
        call_open="<function=",
        call_name_end=">",
        call_close="</function>",
        key_open="<parameter=",
        key_ends={">": None},
        key_close="</parameter>",
        newlines=True,
    )


FORMAT = ToolFormat(
    name="qwen3-coder",
    constrain=tagged_grammar(_tags("tool_call")),
    steps=lambda tools: TaggedCalls(_tags("tool_call"), tools).steps,
    detect=lambda source, tokens: "<function=" in source and "<parameter=" in source and "<seed:" not in source,
)
SEED_OSS = ToolFormat(
    name="seed-oss",
    constrain=tagged_grammar(_tags("seed:tool_call")),
    steps=lambda tools: TaggedCalls(_tags("seed:tool_call"), tools).steps,
    detect=lambda source, tokens: "seed:tool_call" in source,
)
