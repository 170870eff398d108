"""The grammar of Gemma's notation of calls: bare keys, and strings between quotes in which nothing is escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from millstream.ir.request import Tool
from millstream.parsing.tools.shared.grammar import ANY_TEXT, marker, pattern, quoted
from millstream.parsing.tools.shared.schemas import (
    CannotHold,
    Schema,
    branches,
    limits,
    parameters,
    resolved,
    string_expression,
    values,
)
from millstream.parsing.tools.shared.sequences import COMMA, Member, Shared, in_order

_KEY = re.compile(r"[A-Za-z_][\w.\-]*")
_ANY_KEY = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"
_SCALARS = frozenset({"number", "integer", "boolean", "null"})
_ARRAY = frozenset({"type", "items", "minItems", "maxItems"})
_MAX_ITEMS = 1000


class Notation:
    """Collects the rules of one grammar.

    Args:
        quote: the marker around strings.
    """

    def __init__(self, quote: str, control_tokens: Mapping[str, int]) -> None:
        self._quote = quote
        self._mark = marker(quote, control_tokens)
        self._control = quote in control_tokens
        self._values = Shared("v")
        self._lines: list[str] = [COMMA]
        self._count = 0
        self._known: dict[tuple[str, str], str] = {}
        self._texts: dict[str, str] = {}
        self._anything = ""

    @property
    def rules(self) -> str:
        """All rules so far."""
        return "\n".join([*self._lines, *self._values.lines])

    def arguments(self, tool: Tool) -> str:
        """The name of a rule: the arguments of a tool.

        Raises:
            CannotHold: they cannot be written, or not held to the schema though the tool is strict.
        """
        return self._object(tool, tool.parameters or {}, "")

    def _object(self, tool: Tool, schema: Schema, place: str) -> str:
        root = tool.parameters or {}
        shared: Schema = {key: root[key] for key in ("$defs", "definitions") if key in root}
        known, extra = parameters(Tool(tool.name, parameters={**shared, **schema}, strict=tool.strict))
        members = []
        for parameter in known:
            where = f"{place}/properties/{parameter.name}"
            if _KEY.fullmatch(parameter.name):
                original = (schema.get("properties") or {}).get(parameter.name, parameter.schema)
                body = f"{quoted(parameter.name + ':')} ws {self._value(tool, original, where)}"
                members.append(Member(body, parameter.required))
            elif parameter.required:
                raise CannotHold(tool.name, where, "the format cannot write this name")
        if extra is not None:
            body = f'{_ANY_KEY} ":" ws {self._value(tool, extra, place + "/additionalProperties")}'
            members.append(Member(body, False, repeat=True))
        self._count += 1
        name = f"x{self._count}"
        self._lines.append(in_order(name, members))
        return self._values.rule(f'"{{" ws {name} ws "}}"')

    def _value(self, tool: Tool, schema: Any, place: str) -> str:
        """The name of a rule; what a reference names has one rule, however often it is named."""
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            return self._values.rule(self._body(tool, schema, place))
        key = (tool.name, reference)
        if key not in self._known:
            self._count += 1
            name = self._known[key] = f"shared_{self._count}"
            body = self._body(tool, resolved(schema, tool.parameters or {}), place)
            self._lines.append(f"{name}: {body}")
        return self._known[key]

    def _body(self, tool: Tool, schema: Any, place: str) -> str:
        root = tool.parameters or {}
        for key in ("anyOf", "oneOf"):
            if isinstance(schema, dict) and isinstance(schema.get(key), list) and limits(schema) <= {key}:
                options = [self._value(tool, option, f"{place}/{key}/{at}") for at, option in enumerate(schema[key])]
                if options:
                    return " | ".join(options)
        ways = [self._typed(tool, option, place) for option in branches(resolved(schema, root), root)]
        return " | ".join(ways)

    def _typed(self, tool: Tool, schema: Schema, place: str) -> str:
        listed = values(schema)
        if listed is not None:
            found = [text for value in listed if (text := self._literal(value)) is not None]
            if not found:
                raise CannotHold(tool.name, place, "the format can write none of its values")
            return " | ".join(found)
        kind = schema.get("type")
        if kind == "string":
            return self._string(string_expression(schema, tool.name, place, strict=tool.strict))
        if kind in _SCALARS:
            return "%json " + json.dumps(schema)
        if kind is not None and kind not in ("object", "array"):
            raise CannotHold(tool.name, place, f"there is no type {str(kind)[:64]!r}")
        if kind == "object":
            return self._object(tool, schema, place)
        if kind == "array":
            return self._array(tool, schema, place)
        if tool.strict and limits(schema):
            raise CannotHold(tool.name, place, "what is held there must have a type")
        return self._any()

    def _array(self, tool: Tool, schema: Schema, place: str) -> str:
        if tool.strict and (others := limits(schema) - _ARRAY):
            raise CannotHold(tool.name, place, f"{min(others)!r} cannot be held for a list")
        item = self._value(tool, schema.get("items", {}), f"{place}/items")
        low, high = (schema.get(key) for key in ("minItems", "maxItems"))
        low = min(low, _MAX_ITEMS) if isinstance(low, int) else 0
        if high == 0:
            return '"[" ws "]"'
        most = max(min(high, _MAX_ITEMS), 1) - 1 if isinstance(high, int) else ""
        many = f"{item} (comma {item}){{{max(low - 1, 0)},{most}}}"
        return f'"[" ws {many} ws "]"' if low else f'"[" ws ({many})? ws "]"'

    def _string(self, expressions: list[str]) -> str:
        terms = [pattern(expression) for expression in expressions] or [ANY_TEXT]
        terms.append("~" + pattern(f"(?s:.*){re.escape(self._quote)}(?s:.*)"))
        body = " & ".join(terms)
        if body not in self._texts:
            name = self._texts[body] = f"text_of_{len(self._texts)}"
            self._lines.append(f"{name.upper()}: {body}")
            if not self._control:
                self._lines.append(f"{name}[lazy]: {name.upper()} {quoted(self._quote)}")
        name = self._texts[body]
        return f"{self._mark} {name.upper()} {self._mark}" if self._control else f"{self._mark} {name}"

    def _any(self) -> str:
        if not self._anything:
            self._anything = "anything"
            text = self._string([])
            items = "(anything (comma anything)*)?"
            pair = f'{_ANY_KEY} ":" ws anything'
            scalar = '%json {"type": ["number", "boolean", "null"]}'
            self._lines.append(
                f'anything: {text} | {scalar} | "[" ws {items} ws "]" | "{{" ws ({pair} (comma {pair})*)? ws "}}"'
            )
        return self._anything

    def _literal(self, value: Any) -> str | None:
        """A value as the format writes it; None: it cannot."""
        if isinstance(value, str):
            return (
                None
                if self._quote in value
                else " ".join(filter(None, (self._mark, value and quoted(value), self._mark)))
            )
        if isinstance(value, list):
            items = [self._literal(item) for item in value]
            return None if None in items else '"[" ' + ' "," '.join(map(str, items)) + ' "]"'
        if isinstance(value, dict):
            if not all(_KEY.fullmatch(key) for key in value):
                return None
            pairs = [(key, self._literal(item)) for key, item in value.items()]
            if any(item is None for _, item in pairs):
                return None
            return '"{" ' + ' "," '.join(f"{quoted(key + ':')} {item}" for key, item in pairs) + ' "}"'
        return quoted(json.dumps(value))
