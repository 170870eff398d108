"""What formats that write parameters one by one read out of a tool's JSON schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from millstream.ir.request import Tool
from millstream.parsing.tools.shared.arguments import json_types

Schema = dict[str, Any]

_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment",
     "$defs", "definitions", "strict", "x-guidance", "format", "contentEncoding", "contentMediaType", "nullable"}
)  # fmt: skip
"""Keywords that limit nothing; ``format`` is taken as the note that JSON Schema says it is."""

_OBJECT = frozenset({"type", "properties", "required", "additionalProperties"})
_STRING = frozenset({"type", "minLength", "maxLength", "pattern"})
_SHARED = ("$defs", "definitions")
_MAX_REFERENCES = 16
_MAX_ALTERNATIVES = 256


class CannotHold(ValueError):
    """A schema that the format cannot hold an answer to.

    Attributes:
        tool: the tool's name.
        place: JSON pointer into its parameters; empty: the whole.
        why: what is in the way, to be read behind a colon.
    """

    def __init__(self, tool: str, place: str, why: str) -> None:
        super().__init__(f"{tool}: {place}: {why}")
        self.tool, self.place, self.why = tool, place, why


class Parameter(NamedTuple):
    """One member of the arguments. ``schema`` has no reference at its root; an empty one allows anything."""

    name: str
    schema: Schema
    required: bool


class Parameters(NamedTuple):
    """The members of a tool's arguments in their order. ``extra``: the schema of any others; None: there are none."""

    known: list[Parameter]
    extra: Schema | None


def parameters(tool: Tool) -> Parameters:
    """Read a tool's schema.

    Raises:
        CannotHold: the tool is strict and has keywords that cannot be held member by member.
    """
    root: Schema = tool.parameters or {}
    schema = resolved(root, root)
    if tool.strict and (others := set(schema) - _OBJECT - _ANNOTATIONS):
        raise CannotHold(tool.name, "", f"{min(others)!r} cannot be held together with a form that has no objects")
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    wanted = schema.get("required")
    required = [name for name in wanted if isinstance(name, str)] if isinstance(wanted, list) else []
    extra = schema.get("additionalProperties", {})
    if extra is True:
        extra = {}
    extra = resolved(extra, root) if isinstance(extra, dict) else None
    known = [Parameter(name, resolved(value, root), name in required) for name, value in properties.items()]
    if (missing := [name for name in required if name not in properties]) and extra is None:
        raise CannotHold(tool.name, "/required", f"{missing[0]!r} must be there and may not")
    known += [Parameter(name, extra or {}, True) for name in missing]
    # A tool that names its parameters is not called with others, though its schema may not forbid them.
    return Parameters(known, None if properties else extra)


def resolved(schema: Any, root: Schema) -> Schema:
    """A schema with what its root refers to in its place. What is no schema, or refers to nothing, allows anything."""
    if not isinstance(schema, dict):
        return {"not": {}} if schema is False else {}
    found: Schema = schema
    for _ in range(_MAX_REFERENCES):
        alone = found.get("allOf")
        if isinstance(alone, list) and len(alone) == 1 and isinstance(alone[0], dict):
            found = {**alone[0], **{key: value for key, value in found.items() if key != "allOf"}}
        elif isinstance(reference := found.get("$ref"), str):
            target = _target(reference, root)
            if not isinstance(target, dict):
                return found
            found = {**target, **{key: value for key, value in found.items() if key != "$ref"}}
        else:
            return found
    return found


def _target(reference: str, root: Schema) -> Any:
    if not reference.startswith("#"):
        return None
    part: Any = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        part = part.get(name) if isinstance(part, dict) else None
    return part


def document(schema: Schema, root: Schema) -> Schema:
    """A part of a schema as a document of its own, in which references to the whole still hold."""
    shared = {key: root[key] for key in (*_SHARED, "x-guidance") if key in root}
    return {**shared, **schema}


def limits(schema: Schema) -> frozenset[str]:
    """Keywords that limit what a schema allows."""
    return frozenset(schema) - _ANNOTATIONS


def branches(schema: Schema, root: Schema) -> Iterator[Schema]:
    """The alternatives of a schema, each of one type where that is told. Where there are too many, or they refer to
    each other in a circle, the last may be anything."""
    left = [schema]
    for _ in range(_MAX_ALTERNATIVES):
        if not left:
            return
        part = left.pop()
        key = next((key for key in ("anyOf", "oneOf") if isinstance(part.get(key), list)), None)
        if key is not None and limits(part) <= {key}:
            left += [resolved(option, root) for option in reversed(part[key][:_MAX_ALTERNATIVES])]
        elif isinstance(part.get("type"), list):
            left += [{**part, "type": name} for name in reversed(part["type"][:_MAX_ALTERNATIVES])]
        else:
            yield part
    if left:
        yield {}


def values(schema: Schema) -> list[Any] | None:
    """All values that a schema allows, if it lists them."""
    if "const" in schema:
        return [schema["const"]]
    if isinstance(listed := schema.get("enum"), list):
        kind = schema.get("type")
        kinds = frozenset([kind] if isinstance(kind, str) else kind if isinstance(kind, list) else [])
        return [value for value in listed if not kinds or _is(value, kinds)]
    return [None] if schema.get("type") == "null" else None


def _is(value: Any, kinds: frozenset[str]) -> bool:
    found = json_types({"const": value}) or frozenset()
    return bool(found & kinds) or (found == {"integer"} and "number" in kinds)


def is_string(schema: Schema) -> bool:
    """Whether a schema allows strings only."""
    return json_types(schema) == frozenset({"string"})


def string_expression(schema: Schema, tool: str, place: str, *, strict: bool | None) -> list[str]:
    """Regular expressions that a string must match, all of them, in Rust's dialect.

    Raises:
        CannotHold: a strict tool has a keyword that these cannot express.
    """
    found: list[str] = []
    if strict and (others := limits(schema) - _STRING):
        raise CannotHold(tool, place, f"{min(others)!r} cannot be held for a string")
    low, high = _count(schema.get("minLength")), _count(schema.get("maxLength"))
    if low or high is not None:
        found.append(f"(?s:.{{{low or 0},{'' if high is None else high}}})")
    if isinstance(expression := schema.get("pattern"), str):
        if (inner := _unanchored(expression)) is not None:
            found.append(inner)
        elif strict:
            raise CannotHold(tool, f"{place}/pattern", "an anchor beside an alternative cannot be held")
    return found


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _unanchored(expression: str) -> str | None:
    """An expression that matches a whole string where the given one finds something in it; None: not known how."""
    begin, end = expression.startswith("^"), expression.endswith("$") and not expression.endswith("\\$")
    inner = expression[begin : len(expression) - end]
    if "|" in inner and (begin or end):
        inner = f"(?:{inner})" if _grouped(inner) else ""
        if not inner:
            return None
    return ("" if begin else "(?s:.*)") + f"(?:{inner})" + ("" if end else "(?s:.*)")


def _grouped(expression: str) -> bool:
    """Whether every alternative stands within parentheses or brackets."""
    depth, escaped, listed = 0, False, False
    for char in expression:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif listed:
            listed = char != "]"
        elif char == "[":
            listed = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            return False
    return True
