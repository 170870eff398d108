"""The grammar of a format that is described by `Tags`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from millstream.ir.request import Tool
from millstream.parsing.tools.format import Constrain
from millstream.parsing.tools.shared.grammar import answer, marker, quoted, rules
from millstream.parsing.tools.shared.schemas import CannotHold
from millstream.parsing.tools.shared.tagged import NAME, Tags
from millstream.parsing.tools.shared.text_values import Style, TextParameters


def readable(name: str) -> bool:
    """Whether the parser can read a name of a tool or a parameter."""
    return bool(name) and re.fullmatch(NAME, name) is not None


def tagged_grammar(tags: Tags) -> Constrain:
    """Writes the grammars of a format."""
    ends = {told: end for end, told in tags.key_ends.items()}
    told = True in ends

    def key(string: bool) -> tuple[str, str]:
        return tags.key_open, ends[string] if told else ends[None]

    style = Style(key, tags.key_close, readable, newlines=tags.newlines, told=told)

    def constrain(tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]) -> str:
        values = TextParameters(style, control_tokens)

        def call(tool: Tool) -> str:
            if not readable(tool.name):
                raise CannotHold(tool.name, "", "the format cannot write this name")
            name = f"{quoted(tool.name)} {marker(tags.call_name_end, control_tokens)}"
            return f"{name} ws {values.members(tool)} {marker(tags.call_close, control_tokens)}"

        opening, close = marker(tags.call_open, control_tokens), marker(tags.wrap[1], control_tokens)
        more = f" (ws {opening} call)*" if parallel else ""
        lark = [rules("call", tools, call), f"rest: ws {opening} call{more} ws {close}"]
        lark.append(values.rules)
        openings = {tags.wrap[0]: "rest", tags.call_open: "call"}
        return answer(openings, "\n".join(lark), control_tokens, required=required, parallel=False)

    return constrain
