"""Builds the JSON text of a call's arguments from parameters that a format writes one by one as plain text.

One policy, whatever the cut: a parameter whose schema allows strings only is a string, character for character, and is
streamed as it comes. Any other is read whole and then taken as JSON if it is JSON of a type that the schema allows
(Python's True, False and None count as JSON's), else as a string.
"""

from __future__ import annotations

import json
from typing import Any

from millstream.parsing.scan.scanner import Sink

_STRING = frozenset({"string"})
_NUMBER_START = frozenset("-0123456789")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def escaped(text: str) -> str:
    """``text`` as it stands between the quotes of a JSON string. Joins: escaped(a) + escaped(b) == escaped(a + b)."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class ArgumentsWriter:
    """Writes an object member by member.

    Args:
        sink: takes the JSON text.
        properties: schemas of the parameters.
    """

    def __init__(self, sink: Sink, properties: dict[str, Any]) -> None:
        self.sink = sink
        self._properties = properties
        self._count = 0

    def key(self, name: str) -> None:
        """A member begins; its value must follow."""
        self.sink(("{" if self._count == 0 else ", ") + json.dumps(name, ensure_ascii=False) + ": ")
        self._count += 1

    def value(self, name: str, *, string: bool | None = None) -> TextValue:
        """A member whose value comes as text. ``string`` overrides what the schema says about it."""
        self.key(name)
        types = json_types(self._properties.get(name))
        if string is not None:
            types = _STRING if string else None
        return TextValue(self.sink, types)

    def close(self) -> None:
        """The object is complete."""
        self.sink("}" if self._count else "{}")


class TextValue:
    """A value written as text."""

    def __init__(self, sink: Sink, types: frozenset[str] | None) -> None:
        self._sink = sink
        self._types = types
        self._parts: list[str] | None = None if types == _STRING else []
        if self._parts is None:
            sink('"')

    def feed(self, text: str) -> None:
        if self._parts is None:
            self._sink(escaped(text))
        else:
            self._parts.append(text)

    def end(self) -> None:
        if self._parts is None:
            self._sink('"')
        else:
            self._sink(json_for("".join(self._parts), self._types))

    def cut(self) -> None:
        """The output ended within the value: what was read of it, in the form it would most likely have had."""
        if self._parts is not None:
            text = "".join(self._parts).strip()
            if text[:1] in {"{", "["}:
                as_written = self._types is None or bool(self._types & {"array", "object"})
            else:
                as_written = self._types is not None and "string" not in self._types and text[:1] in _NUMBER_START
            self._sink(text if as_written else '"' + escaped(text))


def json_types(schema: Any) -> frozenset[str] | None:
    """The JSON types that a schema allows; None if it does not say."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return frozenset({_type_of(schema["const"])})
    if isinstance(schema.get("enum"), list):
        return frozenset(_type_of(value) for value in schema["enum"])
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(name for name in declared if isinstance(name, str))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            types = [json_types(option) for option in schema[key]]
            known = [option for option in types if option is not None]
            return frozenset().union(*known) if len(known) == len(types) else None
    return None


def json_for(text: str, types: frozenset[str] | None) -> str:
    """The JSON text of a parameter that was written as ``text``; see the policy above."""
    bare = text.strip()
    candidate = _PYTHON_WORDS.get(bare, bare)
    as_string = json.dumps(text, ensure_ascii=False)
    try:
        value = json.loads(candidate, parse_constant=_refuse, parse_int=_zero)
    except (ValueError, RecursionError):
        return as_string
    found = _type_of(value)
    if types is None:
        return as_string if found == "string" else candidate
    if found in types or (found == "integer" and "number" in types):
        return as_string if found == "string" and len(types) > 1 else candidate
    return as_string if "string" in types else candidate


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _zero(digits: str) -> int:
    """Only the type matters, and long integers are slow to read."""
    return 0


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
