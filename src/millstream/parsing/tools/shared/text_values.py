"""Grammars of parameters that are written as plain text between tags, by the policy of `shared.arguments`: a string
stands there as it is, anything else as JSON. The parser tells them apart by the schema, so the grammar does too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.ir.request import Tool
from millstream.parsing.tools.shared.arguments import json_for, json_types
from millstream.parsing.tools.shared.grammar import ANY_TEXT, marker, pattern, quoted
from millstream.parsing.tools.shared.schemas import (
    CannotHold,
    Parameter,
    Schema,
    branches,
    document,
    is_string,
    limits,
    parameters,
    string_expression,
    values,
)

_SCALARS = {
    "null": "null",
    "boolean": "true|false",
    "integer": "-?(0|[1-9][0-9]*)",
    "number": r"-?(0|[1-9][0-9]*)(\.[0-9]+)?",
}
_FREE = "any_value"
_NOTHING = '""'
_EXTRA_KEY = "/[A-Za-z0-9_\\-]{1,64}/"


@dataclass(frozen=True)
class Style:
    """How a format writes one parameter.

    Attributes:
        key: the tags around a parameter's name, given whether a string follows: one before it, one or more behind it.
        close: the closing tag of a value.
        readable: the names that the format's parser can read.
        newlines: whether one newline on either side of a value belongs to the markup.
        told: whether ``key`` differs for strings, so that the schema need not tell them apart.
    """

    key: Callable[[bool], tuple[str, ...]]
    close: str
    readable: Callable[[str], bool]
    newlines: bool = False
    told: bool = False


class TextParameters:
    """Collects the rules of one grammar. What may be any text has one rule for all parameters."""

    def __init__(self, style: Style, control_tokens: Mapping[str, int]) -> None:
        self._style = style
        marks = "".join((*style.key(True), *style.key(False), style.close))
        self._control_tokens = {name: token for name, token in control_tokens.items() if name in marks}
        self._lines: dict[str, None] = {}
        self._count = 0

    @property
    def rules(self) -> str:
        """All rules so far."""
        return "\n".join(self._lines)

    def members(self, tool: Tool) -> str:
        """The name of a rule: all parameters of a tool in their order, those that it does not need optional, each with
        white space behind it.

        Raises:
            CannotHold: a parameter that must be there cannot be written, or a strict tool not be held to its schema.
        """
        known, extra = parameters(tool)
        parts: list[str] = []
        for parameter in known:
            if self._style.readable(parameter.name):
                body = self._value(tool, parameter, quoted(parameter.name))
                parts.append(f"({body}) ws" if parameter.required else f"(({body}) ws)?")
            elif parameter.required:
                raise CannotHold(tool.name, f"/properties/{parameter.name}", "the format cannot write this name")
        if extra is not None:
            parts.append(f"(({self._value(tool, Parameter('*', extra, False), _EXTRA_KEY)}) ws)*")
        self._count += 1
        name = f"args_{self._count}"
        self._lines[f"{name}: {' '.join(parts) or _NOTHING}"] = None
        return name

    def _value(self, tool: Tool, parameter: Parameter, name: str) -> str:
        self._count += 1
        value = _Value(f"v{self._count}", tool, parameter, self._style, self._control_tokens)
        body = value.body(name)
        self._lines |= dict.fromkeys(value.lines)
        return body


class _Value:
    """The rules of one parameter. ``lines`` are complete once `body` has been called."""

    def __init__(
        self, rule: str, tool: Tool, parameter: Parameter, style: Style, control_tokens: Mapping[str, int]
    ) -> None:
        self._rule = rule
        self._terminal = rule.upper()
        self._tool = tool
        self._root: Schema = tool.parameters or {}
        self._place = f"/properties/{parameter.name}"
        self._style = style
        self._control_tokens = control_tokens
        self._options = list(branches(parameter.schema, self._root))
        self._schema = parameter.schema
        self.lines: list[str] = []

    def body(self, name: str) -> str:
        """From the opening tag to the closing one."""
        free = [option for option in self._options if json_types(option) is None]
        if free or not self._options:
            if self._tool.strict and any(limits(option) for option in free):
                raise CannotHold(self._tool.name, self._place, "what is held there must have a type")
            return self._tagged(name, True, self._anything())
        types = json_types({"anyOf": self._options}) or frozenset()
        if "string" not in types:
            return self._tagged(name, False, self._json(self._schema))
        texts, rest = self._texts(types)
        if texts == [ANY_TEXT] and not rest:
            return self._tagged(name, True, self._anything())
        ways = [self._tagged(name, True, self._text(texts))] if texts else []
        if rest:
            ways.append(self._tagged(name, False, self._json({"anyOf": rest})))
        if not ways:
            raise CannotHold(self._tool.name, self._place, "the format can write none of its values")
        return " | ".join(ways)

    def _tagged(self, name: str, text: bool, value: str) -> str:
        before, *behind = self._style.key(text)
        if self._style.newlines and value != _FREE:
            behind[-1] += "\n"
        marks = " ws ".join(marker(mark, self._control_tokens) for mark in behind)
        return f"{marker(before, self._control_tokens)} {name} {marks} {value}"

    def _anything(self) -> str:
        """Text up to the closing tag."""
        return self._closed(_FREE, _FREE.upper(), ANY_TEXT, self._style.close)

    def _text(self, texts: list[str]) -> str:
        """One of these, and no closing tag in it."""
        end = "\n" * self._style.newlines + self._style.close
        self.lines.append(f"{self._terminal}_ONE: " + " | ".join(texts))
        return self._closed(f"{self._rule}_t", f"{self._terminal}_TEXT", f"{self._terminal}_ONE", end)

    def _closed(self, rule: str, terminal: str, text: str, end: str) -> str:
        close = self._style.close
        without = f"{text} & ~{pattern('(?s:.*)' + re.escape(close) + '(?s:.*)')}"
        if close in self._control_tokens:
            before = end.removesuffix(close)
            self.lines.append(f"{terminal}_ALONE: {without}")
            self.lines.append(f"{terminal}: {terminal}_ALONE {quoted(before)}" if before else f"{terminal}: {without}")
            self.lines.append(f"{rule}: {terminal} {marker(close, self._control_tokens)}")
        else:
            self.lines += [f"{terminal}: {without}", f"{rule}[lazy]: {terminal} {quoted(end)}"]
        return rule

    def _json(self, schema: Schema) -> str:
        text = json.dumps(document(schema, self._root), ensure_ascii=False)
        return f"ws %json {text} ws {marker(self._style.close, self._control_tokens)}"

    def _texts(self, types: frozenset[str]) -> tuple[list[str], list[Schema]]:
        """What may stand there as text, and the alternatives that remain for JSON."""
        told = self._style.told
        strings: list[list[str]] = []
        texts: list[str] = []
        rest: list[Schema] = []
        for option in self._options:
            listed = values(option)
            if listed is not None:
                own = [self._literal(value, types) for value in listed if not told or isinstance(value, str)]
                texts += [text for text in own if text is not None]
                if told and (others := [value for value in listed if not isinstance(value, str)]):
                    rest.append({"enum": others})
            elif is_string(option):
                strings.append(string_expression(option, self._tool.name, self._place, strict=self._tool.strict))
            else:
                rest.append(option)
        scalars = [option for option in rest if limits(option) <= {"type"} and option.get("type") in _SCALARS]
        if strings and not told:
            rest = [option for option in rest if option not in scalars]
            if all(strings):
                texts += [pattern(_SCALARS[option["type"]]) for option in scalars]
        texts += [self._string(expressions, rest) for expressions in strings]
        return ([ANY_TEXT], rest) if ANY_TEXT in texts else (texts, rest)

    def _literal(self, value: Any, types: frozenset[str]) -> str | None:
        """A value as text, if it is read as what it is."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if isinstance(value, str) and (self._style.told or types == {"string"}):
            return quoted(text)
        read = json_for(text, types)
        return quoted(text) if read == json.dumps(value, ensure_ascii=False) else None

    def _string(self, expressions: list[str], rest: list[Schema]) -> str:
        """A string, and none that would be read as one of ``rest``."""
        terms = [pattern(expression) for expression in expressions] or [ANY_TEXT]
        if rest and not self._style.told:
            numbers = any((json_types(option) or set()) & {"integer", "number"} for option in rest)
            terms.append("~" + pattern(r"(?s:[\s\x1c-\x1f]*[\[{" + (r"\-0-9" if numbers else "") + "].*)"))
        if len(terms) == 1:
            return terms[0]
        name = f"{self._terminal}_S{len(self.lines)}"
        self.lines.append(f"{name}: " + " & ".join(terms))
        return name
