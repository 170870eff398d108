"""Grammars of answers, in llguidance's form: a JSON list of grammars that refer to each other by name.

A grammar holds for the whole answer, reasoning included: thoughts are a lazy prefix of it. So the state of a
constrained sequence depends on nothing but its output tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from millstream.ir.request import ResponseFormat, Tool
from millstream.parsing.reasoning.format import HARMONY, ReasoningFormat
from millstream.parsing.tools import harmony
from millstream.parsing.tools.shared.grammar import marker, pattern

Rule = dict[str, Any]
"""One grammar of the list, without its name: ``lark_grammar`` or ``json_schema``."""


class AnswerGrammar(NamedTuple):
    """The grammar of an answer, and what it was made of, to find the fault if it cannot be compiled.

    Attributes:
        text: all of it, for the engine.
        calls: the grammar of tool calls, made of the schemas of ``tools``.
        tools: position in the request and schema of each tool that may be called.
        response: the grammar of visible text, made of ``format``.
    """

    text: str
    calls: Rule | None = None
    tools: tuple[tuple[int, Tool], ...] = ()
    response: Rule | None = None
    format: ResponseFormat = ResponseFormat()


ReasoningState = Literal["none", "possible", "open"]
"""Where an answer begins: no reasoning will come, it may come first, or the prompt has opened it already."""

_SPACE = r"ws: /[ \t\r\n]{0,16}/"
_THOUGHTS = "THOUGHTS: /(?s:.*)/"
_JSON_SPACE = r"[ \n\r\t]{0,32}"
"""White space between JSON tokens is bounded: small models may else write nothing but line ends."""


def lark_rule(grammar: str) -> Rule:
    """A format's own grammar."""
    return {"lark_grammar": grammar}


def json_rule(schema: dict[str, Any] | bool) -> Rule:
    """JSON that a schema allows. ``oneOf`` is taken as ``anyOf``: a grammar cannot count alternatives."""
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    options = {"whitespace_pattern": _JSON_SPACE, "coerce_one_of": True}
    return {"json_schema": {**schema, "x-guidance": options}}


def for_calls(tool: Tool) -> Tool:
    """The tool with a schema for grammars: unless it is strict, keywords that no grammar can hold are passed over."""
    options = {"whitespace_pattern": _JSON_SPACE, "coerce_one_of": True, "lenient": not tool.strict}
    return replace(tool, parameters={**(tool.parameters or {}), "x-guidance": options})


def response_rule(format: ResponseFormat) -> Rule | None:
    """What the visible text must be; None if it may be anything."""
    match format.kind:
        case "json_object":
            return json_rule({"type": "object"})
        case "json_schema":
            return json_rule({"type": "object"} if format.schema is None else format.schema)
        case "regex":
            return lark_rule("start: " + pattern(format.pattern or ""))
        case "grammar":
            return lark_rule(format.pattern or "")
        case "text":
            return None


def compose(
    calls: Rule | None,
    response: Rule | None,
    reasoning: ReasoningFormat,
    state: ReasoningState,
    control_tokens: Mapping[str, int],
    *,
    once: bool = False,
) -> str:
    """The grammar of an answer: reasoning as ``state`` says, then calls or visible text, whichever have a rule.

    Args:
        once: where reasoning is a message among others, there is one of it at most.
    """
    before, rules, prefix = _thoughts(reasoning, state, control_tokens, once=once)
    named = {name: rule for name, rule in (("calls", calls), ("response", response)) if rule is not None}
    answers = [f"@{name}" if name == "calls" else f"{prefix} @{name}".strip() for name in named]
    lark = f"start: {before} ({' | '.join(answers)})\n{rules}"
    grammars = [{"lark_grammar": lark}, *({"name": name, **rule} for name, rule in named.items())]
    # ASCII, so that a lone surrogate is a complaint of the compiler and not of the way there.
    return json.dumps({"grammars": grammars})


def _thoughts(
    reasoning: ReasoningFormat, state: ReasoningState, control_tokens: Mapping[str, int], *, once: bool
) -> tuple[str, str, str]:
    """What stands before an answer, the rules that this uses, and what stands before visible text in particular."""
    if reasoning is HARMONY and harmony.held(control_tokens):
        rules, final = harmony.frame(control_tokens, once=once)
        return "thoughts", rules, final
    if state == "none":
        return "", "", ""
    close = marker(reasoning.close, control_tokens)
    # From behind the opening tag to behind the first closing one.
    lazy = "" if reasoning.close in control_tokens else "[lazy]"
    rules = f"thoughts{lazy}: THOUGHTS {close}\n{_THOUGHTS}\n{_SPACE}"
    if state == "open":
        return "thoughts ws", rules, ""
    return f"(ws {marker(reasoning.open, control_tokens)} thoughts ws)?", rules, ""
