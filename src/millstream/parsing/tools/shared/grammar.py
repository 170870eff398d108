"""Writes the grammars of tool formats in llguidance's Lark dialect.

Two rules of its lexer are used throughout: a ``[lazy]`` terminal ends at its first match and wins over any other that
could go on, so free text cannot run past a marker; and a terminal may be cut out of another (``& ~``), so free text
cannot spell what a parser would take for a call in a form that the grammar does not describe.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from millstream.ir.request import Tool

SPACE = r"[ \t\r\n]"
"""White space of JSON and code. Parsers take Unicode's too, for which a lexer needs many times the states."""

ANY_TEXT = "/(?s:.*)/"
_WS = r"ws: /[ \t\r\n]{0,16}/"

_HEAD = rf'{SPACE}*\{{{SPACE}*"name"'
_OTHERS = (
    rf'{SPACE}*\{{{SPACE}*"(function|tool_name|arguments|parameters|args|input|id|call_id|type|[^"\\]*\\)',
    rf"{SPACE}*\[{SPACE}*\{{",
)
"""Beginnings of JSON that a parser may read as calls: the form of the grammars, and all others."""


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
    """Calls that nothing marks but their form, at the beginning of a text.

    Attributes:
        heads: regular expressions of how one begins, with what follows.
        others: those of beginnings that a parser would read as a call too; free text may not begin with them.
    """

    heads: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()


def bare_json(rest: str) -> Bare:
    """``{"name"``, also behind another call and a separator; ``rest``: what follows it."""
    return Bare((("[ \\t\\r\\n,;]*" + _HEAD, rest),), tuple("[ \\t\\r\\n,;]*" + other for other in _OTHERS))


def answer(
    openings: Mapping[str, str],
    lark: str,
    control_tokens: Mapping[str, int],
    *,
    required: bool,
    parallel: bool,
    bare: Sequence[Bare] = (),
    fences: Mapping[str, Bare] | None = None,
) -> str:
    """A whole answer.

    Args:
        openings: what stands behind each marker with which calls may begin; the first is the one to be written.
        lark: the rules that these use.
        required: nothing but calls, at least one; otherwise also text before, between and after.
        parallel: whether the first marker may come again in a required answer.
        bare: calls without a marker, where free text begins.
        fences: the same behind markers that may also have other text behind them.
    """
    if required:
        opening, rest = next(iter(openings.items()))
        call = f"{marker(opening, control_tokens)} {rest}"
        return whole(f"start: {call}" + (f" (ws {call})*" if parallel else "") + f"\n{lark}")
    return whole(f"start: text_0\n{_free_text(openings, control_tokens, bare, fences or {})}\n{lark}")


def _free_text(
    openings: Mapping[str, str], control_tokens: Mapping[str, int], bare: Sequence[Bare], fences: Mapping[str, Bare]
) -> str:
    """Rules that define ``text_0``: text with calls in it; what begins as a call is one. A marker counts as a control
    token and as text, as parsers read both.

    ``text_0`` is the text of the answer's beginning and behind a call, ``text_N`` that behind the fence N.
    """
    begun = Bare(
        tuple(head for one in bare for head in one.heads), tuple(other for one in bare for other in one.others)
    )
    lines: list[str] = []
    for number, beginning in enumerate([begun, *fences.values()]):
        text = f"TEXT_{number}"
        others = "".join(f" & ~{pattern(f'(?s:{other}.*)')}" for other in beginning.others)
        lines.append(f"{text}: {ANY_TEXT}{others}")
        ways = [text]
        for at, (head, rest) in enumerate(beginning.heads):
            lines.append(f"head_{number}_{at}[lazy]: {pattern(head)}")
            ways.append(f"head_{number}_{at} {rest} text_0")
        behind = [(opening, f"{rest} text_0") for opening, rest in openings.items()]
        behind += [(fence, f"text_{at}") for at, fence in enumerate(fences, 1)]
        for at, (mark, rest) in enumerate(behind):
            if mark in control_tokens:
                ways.append(f"{text} {marker(mark, control_tokens)} {rest}")
            lines.append(f"marked_{number}_{at}[lazy]: {text} {quoted(mark)}")
            ways.append(f"marked_{number}_{at} {rest}")
        lines.append(f"text_{number}: " + " | ".join(ways))
    return "\n".join(lines)
