"""Tools, tool choice and response format of a chat completions request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from millstream.ir.errors import invalid, missing
from millstream.ir.request import ResponseFormat, Tool, ToolChoice
from millstream.surfaces.schemas import check_parameters, check_tool_count, schema_format
from millstream.surfaces.wire import Limits

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class WireFunctionTool(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class WireTool(msgspec.Struct, frozen=True):
    type: str
    function: WireFunctionTool | None = None


class WireName(msgspec.Struct, frozen=True):
    name: str


class WireToolReference(msgspec.Struct, frozen=True):
    type: str
    function: WireName | None = None


class WireAllowedTools(msgspec.Struct, frozen=True):
    mode: str
    tools: list[WireToolReference]


class WireToolChoice(msgspec.Struct, frozen=True):
    type: str
    function: WireName | None = None
    allowed_tools: WireAllowedTools | None = None


class WireJsonSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | bool | None = None
    strict: bool | None = None


class WireResponseFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    json_schema: WireJsonSchema | None = None
    schema: dict[str, Any] | None = None
    pattern: str | None = None
    grammar: str | None = None


def tools(wire: list[WireTool] | None, limits: Limits) -> tuple[Tool, ...]:
    """Declared functions.

    Raises:
        ApiError: 400 for a tool that is no function, a bad or repeated name, a schema that is no object's.
    """
    check_tool_count(len(wire or ()), limits)
    declared: dict[str, Tool] = {}
    for position, entry in enumerate(wire or ()):
        path = f"tools[{position}]"
        tool = _tool(entry, path, limits)
        if tool.name in declared:
            raise invalid(f"{path}.function.name: {tool.name!r} is declared twice.", param=f"{path}.function.name")
        declared[tool.name] = tool
    return tuple(declared.values())


def _tool(wire: WireTool, path: str, limits: Limits) -> Tool:
    if wire.type != "function":
        raise invalid(
            f"{path}.type must be 'function', got {wire.type[:64]!r}.",
            param=f"{path}.type",
            code="unsupported_parameter",
        )
    function = wire.function
    if function is None:
        raise missing(f"{path}.function")
    if not _NAME.fullmatch(function.name):
        raise invalid(
            f"{path}.function.name must be 1 to 64 letters, digits, '_' or '-', got {function.name[:80]!r}.",
            param=f"{path}.function.name",
        )
    check_parameters(function.parameters, f"{path}.function.parameters", limits)
    return Tool(function.name, function.description, function.parameters, function.strict)


def tool_choice(wire: str | WireToolChoice | None, declared: Sequence[Tool]) -> ToolChoice:
    """What may be called.

    Raises:
        ApiError: 400 for an unknown form, a tool that was not declared, or a call required without tools.
    """
    if wire is None:
        return ToolChoice()
    if isinstance(wire, str):
        choice = _mode(wire, "tool_choice", ("none", "auto", "required"))
    elif wire.type == "function":
        if wire.function is None:
            raise missing("tool_choice.function")
        _require_declared(wire.function.name, declared, "tool_choice.function.name")
        choice = ToolChoice("required", (wire.function.name,))
    elif wire.type == "allowed_tools":
        choice = _allowed(wire.allowed_tools, declared)
    else:
        raise invalid(
            f"tool_choice.type must be 'function' or 'allowed_tools', got {wire.type[:64]!r}.",
            param="tool_choice.type",
        )
    if declared:
        return choice
    if choice.mode == "required":
        raise invalid("tool_choice requires a call, but there are no tools.", param="tool_choice")
    return ToolChoice()


def _allowed(wire: WireAllowedTools | None, declared: Sequence[Tool]) -> ToolChoice:
    path = "tool_choice.allowed_tools"
    if wire is None:
        raise missing(path)
    if not wire.tools:
        raise invalid(f"{path}.tools must not be empty.", param=f"{path}.tools")
    names = []
    for position, reference in enumerate(wire.tools):
        where = f"{path}.tools[{position}]"
        if reference.function is None:
            raise missing(f"{where}.function")
        _require_declared(reference.function.name, declared, f"{where}.function.name")
        names.append(reference.function.name)
    mode = _mode(wire.mode, f"{path}.mode", ("auto", "required")).mode
    return ToolChoice(mode, tuple(dict.fromkeys(names)))


def _mode(value: str, path: str, known: tuple[str, ...]) -> ToolChoice:
    if value not in known:
        raise invalid(f"{path} must be one of {', '.join(known)}, got {value[:64]!r}.", param=path)
    return ToolChoice(value)  # type: ignore[arg-type]  # one of the literal's values


def _require_declared(name: str, declared: Sequence[Tool], path: str) -> None:
    if all(tool.name != name for tool in declared):
        raise invalid(f"{path}: no tool {name[:80]!r} is declared in tools.", param=path)


def response_format(wire: WireResponseFormat | None, limits: Limits) -> ResponseFormat:
    """The shape of the visible text.

    Raises:
        ApiError: 400 for an unknown type, or a type without what it needs.
    """
    if wire is None:
        return ResponseFormat()
    match wire.type:
        case "text":
            return ResponseFormat()
        case "json_object" if wire.schema is None:
            return ResponseFormat("json_object")
        case "json_object":  # llama.cpp's way to give a schema
            return schema_format(wire.schema, "response_format.schema", limits)
        case "json_schema":
            return _json_schema(wire.json_schema, limits)
        case "regex":
            return ResponseFormat("regex", pattern=_given(wire.pattern, "response_format.pattern"))
        case "grammar":
            return ResponseFormat("grammar", pattern=_given(wire.grammar, "response_format.grammar"))
        case other:
            raise invalid(
                "response_format.type must be one of text, json_object, json_schema, regex, grammar, "
                f"got {other[:64]!r}.",
                param="response_format.type",
            )


def _json_schema(wire: WireJsonSchema | None, limits: Limits) -> ResponseFormat:
    path = "response_format.json_schema"
    if wire is None:
        raise missing(path)
    return schema_format(wire.schema, f"{path}.schema", limits, name=wire.name, strict=wire.strict)


def _given(text: str | None, path: str) -> str:
    if not text:
        raise missing(path)
    return text
