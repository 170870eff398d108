"""Writes the grammars of tool formats in llguidance's Lark dialect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millstream.ir.request import Tool

_TEXT = r"TEXT: /(.|\n)*/"
_SPACE = r"ws: /[ \t\r\n]{0,16}/"


def quoted(text: str) -> str:
    """A literal of the grammar."""
    return json.dumps(text, ensure_ascii=False)


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
    name = quoted(json.dumps(tool.name, ensure_ascii=False))
    key = quoted(json.dumps(arguments_key))
    return rf'"{{" ws "\"name\"" ws ":" ws {name} ws "," ws {key} ws ":" ws {arguments(tool)} ws "}}"'


def rules(name: str, tools: Iterable[Tool], body: Callable[[Tool], str]) -> str:
    """A rule with one alternative for each tool."""
    bodies = [body(tool) for tool in tools]
    numbered = [f"{name}_{index}: {text}" for index, text in enumerate(bodies)]
    choice = " | ".join(f"{name}_{index}" for index in range(len(bodies)))
    return "\n".join([f"{name}: {choice}", *numbered])


def json_list(
    trigger: str,
    close: str,
    tools: Sequence[Tool],
    control_tokens: Mapping[str, int],
    *,
    required: bool,
    parallel: bool,
) -> str:
    """An answer with a list of calls as JSON objects behind ``trigger``."""
    more = ' (ws "," ws call)*' if parallel else ""
    end = f" {marker(close, control_tokens)}" if close else ""
    rest = f'{rules("call", tools, json_call)}\nrest: ws "[" ws call{more} ws "]"{end}'
    return answer(trigger, rest, control_tokens, required=required, repeat=False)


def whole(lark: str) -> str:
    """A grammar of these rules and of ``ws``."""
    return "\n".join(["%llguidance {}", lark, _SPACE]) + "\n"


def answer(trigger: str, rest: str, control_tokens: Mapping[str, int], *, required: bool, repeat: bool) -> str:
    """A whole answer.

    Args:
        trigger: the marker with which calls begin; free text ends at its first occurrence.
        rest: rules that define ``rest``, what stands behind the trigger.
        required: nothing but calls, at least one; otherwise also text before, between and after.
        repeat: whether the trigger may come again.
    """
    opening = marker(trigger, control_tokens)
    if required:
        start = [f"start: {opening} rest" + (f" (ws {opening} rest)*" if repeat else "")]
    elif trigger in control_tokens:
        start = [f"start: called{'*' if repeat else '?'} TEXT", f"called: TEXT {opening} rest"]
    else:
        start = [f"start: called{'*' if repeat else '?'} TEXT", "called: text_trigger rest"]
        start.append(f"text_trigger[lazy]: TEXT {opening}")
    text = [] if required else [_TEXT]
    return whole("\n".join([*start, rest, *text]))
