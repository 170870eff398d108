"""The grammar of calls in Python's notation. Values are JSON, which Python reads alike but for three words, and those
are allowed where a parameter itself may be one of them."""

from __future__ import annotations

import json
import re

from millstream.ir.request import Tool
from millstream.parsing.tools.shared.arguments import json_types
from millstream.parsing.tools.shared.grammar import SPACE, Bare, quoted
from millstream.parsing.tools.shared.python_calls import NAME
from millstream.parsing.tools.shared.schemas import CannotHold, Schema, branches, document, parameters
from millstream.parsing.tools.shared.sequences import COMMA, Member, Shared, in_order

_WORDS = {"boolean": ["True", "False"], "null": ["None"]}
_EXTRA_KEY = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"
BARE_LIST = rf"{SPACE}*\[{SPACE}*"


def python_rules(tools: list[Tool], *, parallel: bool) -> str:
    """Rules that define ``call`` and ``calls`` (a list of them), and ``python_N``: call N from behind its ``(``.

    Raises:
        CannotHold: a tool or a parameter that it needs has a name that no Python code has.
    """
    more = '(ws "," ws call)* ' if parallel else ""
    lines = ['calls: "[" ws call more_calls', f'more_calls: {more}ws "]"']
    values = Shared("j")
    lines.append(COMMA)
    lines.append("call: " + " | ".join(f"call_{number}" for number in range(len(tools))))
    for number, tool in enumerate(tools):
        if not _readable(tool.name):
            raise CannotHold(tool.name, "", "the format cannot write this name")
        lines += [
            f"call_{number}: {quoted(tool.name + '(')} python_{number}",
            f'python_{number}: ws x{number} ws ")"',
            in_order(f"x{number}", _members(tool, values)),
        ]
    return "\n".join([*lines, *values.lines])


def bare_list(tools: list[Tool]) -> Bare:
    """``[name(`` as the beginning of the answer."""
    heads = [
        (f"{BARE_LIST}{re.escape(tool.name)}\\(", f"python_{number} more_calls") for number, tool in enumerate(tools)
    ]
    return Bare(tuple(heads), (BARE_LIST + r"[\w.\-]+\(",))


def _members(tool: Tool, values: Shared) -> list[Member]:
    known, extra = parameters(tool)
    members = []
    for parameter in known:
        if _readable(parameter.name):
            members.append(
                Member(
                    f"{quoted(parameter.name + '=')} {values.rule(_value(parameter.schema, tool))}", parameter.required
                )
            )
        elif parameter.required:
            raise CannotHold(tool.name, f"/properties/{parameter.name}", "the format cannot write this name")
    if extra is not None:
        members.append(Member(f'{_EXTRA_KEY} "=" {values.rule(_value(extra, tool))}', False, repeat=True))
    return members


def _value(schema: Schema, tool: Tool) -> str:
    root = tool.parameters or {}
    types = {
        name for option in branches(schema, root) if "enum" not in option for name in json_types(option) or frozenset()
    }
    words = [quoted(word) for kind, listed in _WORDS.items() if kind in types for word in listed]
    return f"({' | '.join([*words, '%json ' + json.dumps(document(schema, root), ensure_ascii=False)])})"


def _readable(name: str) -> bool:
    return bool(name) and NAME.fullmatch(name) is not None
