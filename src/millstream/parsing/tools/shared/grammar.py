"""Writes the grammars of tool formats in llguidance's Lark dialect.

Two rules of its lexer are used throughout: a ``[lazy]`` terminal ends at its first match and wins over any other that
could go on, so free text cannot run past a marker; and a terminal may be cut out of another (``& ~``), so free text
cannot spell what a parser would take for a call in a form that the grammar does not describe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from millstream.ir.request import Tool

SPACE = r"[\s\x1c-\x1f]"
"""What parsers take for white space, in a regular expression."""

ANY_TEXT = "/(?s:.*)/"
_WS = r"ws: /[ \t\r\n]{0,16}/"

_BARE_HEAD = rf'{SPACE}*\{{{SPACE}*"name"'
_BARE_OTHERS = (
    rf'{SPACE}*\[?{SPACE}*\{{{SPACE}*"'
    r'(function|tool_name|arguments|parameters|args|input|id|call_id|type|[^"\\]*\\)'
)
"""Beginnings of JSON objects that a parser may read as calls: the form of the grammars, and all others."""

_BARE_LISTS = rf'{SPACE}*\[{SPACE}*\{{{SPACE}*"name"'


def quoted(text: str) -> str:
    """A literal of the grammar."""
    return json.dumps(text, ensure_ascii=False)


def pattern(expression: str) -> str:
    """A regular expression as a terminal, in which a slash ends it."""
    out: list[str] = []
    escaped = False
    for char in expression:
        if char == "\n":
            out.append("n" if escaped else r"\n")
        else:
            out.append(r"\/" if char == "/" and not escaped else char)
        escaped = char == "\\" and not escaped
    return f"/{''.join(out)}/"


def marker(text: str, control_tokens: Mapping[str, int]) -> str:
    """A marker: by its id if the tokenizer has a control token for it, else as text."""
    return f"<[{control_tokens[text]}]>" if text in control_tokens else quoted(text)


def arguments(tool: Tool) -> str:
    """The arguments of a tool: an object that its schema allows."""
    schema: dict[str, Any] = dict(tool.parameters or {})
    schema.setdefault("type", "object")
    return "%json " + json.dumps(schema, ensure_ascii=False)


def json_call(tool: Tool, arguments_key: str = "arguments") -> str:
    """``{"name": …, "arguments": {…}}``. The schema stays the root of its own document, so its references hold."""
    return rf'"{{" ws "\"name\"" {json_tail(tool, arguments_key)}'


def json_tail(tool: Tool, arguments_key: str = "arguments") -> str:
    """What stands behind ``{"name"``."""
    name = quoted(json.dumps(tool.name, ensure_ascii=False))
    key = quoted(json.dumps(arguments_key))
    return rf'ws ":" ws {name} ws "," ws {key} ws ":" ws {arguments(tool)} ws "}}"'


def rules(name: str, tools: Iterable[Tool], body: Callable[[Tool], str]) -> str:
    """A rule with one alternative for each tool."""
    bodies = [body(tool) for tool in tools]
    numbered = [f"{name}_{index}: {text}" for index, text in enumerate(bodies)]
    choice = " | ".join(f"{name}_{index}" for index in range(len(bodies)))
    return "\n".join([f"{name}: {choice}", *numbered])


def json_list(name: str, tools: Sequence[Tool], *, parallel: bool) -> str:
    """Rules that define ``name``: a list of calls as JSON objects; ``list``: the same from behind its bracket."""
    more = ' (ws "," ws call)*' if parallel else ""
    calls = rules("call", tools, json_call)
    return f'{calls}\n{name}: ws "[" list\nlist: ws call{more} ws "]"'


def whole(lark: str) -> str:
    """A grammar of these rules and of ``ws``."""
    return "\n".join(["%llguidance {}", lark, _WS]) + "\n"


class Bare(NamedTuple):
    """Calls that nothing marks but their form.

    Attributes:
        heads: regular expressions of how one begins, with what follows.
        others: those of beginnings that a parser would read as a call too; free text may not begin with them.
    """

    heads: tuple[tuple[str, str], ...]
    others: tuple[str, ...] = ()


def bare_json(rest: str) -> Bare:
    """``{"name"`` at the beginning, or behind a call and a separator; ``rest``: what follows it."""
    return Bare(((r"[\s,;]*" + _BARE_HEAD, rest),), (r"[\s,;]*" + _BARE_OTHERS, r"[\s,;]*" + _BARE_LISTS))


def fenced_json(fence: str, rest: str) -> Bare:
    """``{"name"`` in a code fence anywhere; ``rest``: what follows it."""
    opening = re.escape(fence)
    return Bare(
        (("(?s:.*)" + opening + _BARE_HEAD, rest),),
        ("(?s:.*)" + opening + _BARE_OTHERS, "(?s:.*)" + opening + _BARE_LISTS),
    )


def answer(
    openings: Mapping[str, str],
    lark: str,
    control_tokens: Mapping[str, int],
    *,
    required: bool,
    parallel: bool,
    bare: Sequence[Bare] = (),
) -> str:
    """A whole answer.

    Args:
        openings: what stands behind each marker with which calls may begin; the first is the one to be written.
        lark: the rules that these use.
        required: nothing but calls, at least one; otherwise also text before, between and after.
        parallel: whether the first marker may come again in a required answer.
        bare: further ways in which calls begin in free text.
    """
    if required:
        opening, rest = next(iter(openings.items()))
        call = f"{marker(opening, control_tokens)} {rest}"
        return whole(f"start: {call}" + (f" (ws {call})*" if parallel else "") + f"\n{lark}")
    return whole(f"start: {free_text(openings, control_tokens, bare)}\n{lark}")


def free_text(openings: Mapping[str, str], control_tokens: Mapping[str, int], bare: Sequence[Bare] = ()) -> str:
    """The body of a rule, and further rules, for text with calls in it: what begins as a call is one. A marker counts
    as a control token and as text, as parsers read both."""
    others = [f" & ~{pattern(f'(?s:{head}.*)')}" for one in bare for head in one.others]
    lines = [f"called* TEXT\nTEXT: {ANY_TEXT}{''.join(others)}"]
    calls: list[str] = []
    for number, (opening, rest) in enumerate(openings.items()):
        if opening in control_tokens:
            calls.append(f"TEXT {marker(opening, control_tokens)} {rest}")
        calls.append(f"text_{number} {rest}")
        lines.append(f"text_{number}[lazy]: TEXT {quoted(opening)}")
    for number, (head, rest) in enumerate(head for one in bare for head in one.heads):
        calls.append(f"head_{number} {rest}")
        lines.append(f"head_{number}[lazy]: {pattern(head)}")
    return "\n".join([*lines, "called: " + " | ".join(calls)])
