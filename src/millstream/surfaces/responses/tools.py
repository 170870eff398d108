"""Tools of a Responses request: one flat list of functions for the model, and the way back to the client's names."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from millstream.ir.errors import invalid, missing
from millstream.ir.request import Tool, ToolChoice
from millstream.surfaces.responses.fields import HOSTED_TOOLS
from millstream.surfaces.schemas import check_parameters, check_tool_count
from millstream.surfaces.wire import Limits

MAX_NAME = 128

CUSTOM_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""A custom tool takes free text: for the model it is a function with this one argument."""


class WireFormat(msgspec.Struct, frozen=True):
    type: str
    syntax: str | None = None
    definition: str | None = None


class WireTool(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: WireFormat | None = None
    tools: list[WireTool] | None = None


class WireChoice(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str | None = None
    tools: list[WireChoice] | None = None


class ToolName(msgspec.Struct, frozen=True):
    """A tool as the client knows it."""

    kind: Literal["function", "custom"]
    name: str
    namespace: str | None = None


class ToolSet(msgspec.Struct, frozen=True):
    """``names`` maps the model's name of a tool to the client's. ``ignored``: types of the hosted tools left out.
    ``paths``: where each tool was declared."""

    tools: tuple[Tool, ...] = ()
    names: dict[str, ToolName] = {}
    ignored: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def flat_name(self, name: str, namespace: str | None) -> str:
        """The model's name of a tool, also of one that is no longer declared."""
        if namespace is None:
            return name
        for flat, known in self.names.items():
            if known.name == name and known.namespace == namespace:
                return flat
        return joined_name(namespace, name)


def joined_name(namespace: str, name: str) -> str:
    """The name of a nested tool."""
    return namespace + name if namespace.endswith("__") else f"{namespace}__{name}"


def read_tools(wire: list[WireTool] | None, limits: Limits) -> ToolSet:
    """Flatten the declared tools.

    Raises:
        ApiError: 400 with the path of a tool that lacks a name, has one twice, or is of an unknown type.
    """
    tools: list[Tool] = []
    paths: list[str] = []
    names: dict[str, ToolName] = {}
    ignored: dict[str, None] = {}
    seen: set[tuple[str | None, str]] = set()

    def declare(tool: WireTool, path: str, namespace: str | None) -> None:
        name = _name(tool, path)
        if tool.type == "function":
            known = ToolName("function", name, namespace)
        elif tool.type == "custom":
            known = ToolName("custom", name, namespace)
        else:
            raise invalid(f"{path}.type must be function or custom, got {tool.type[:64]!r}.", param=f"{path}.type")
        if (namespace, name) in seen:
            raise invalid(f"{path}.name: {name!r} is declared twice.", param=f"{path}.name")
        seen.add((namespace, name))
        flat = name if namespace is None else _free_name(joined_name(namespace, name), names)
        names[flat] = known
        tools.append(_tool(tool, flat, path, limits))
        paths.append(path)
        check_tool_count(len(tools), limits)

    nested: list[tuple[WireTool, str, str]] = []
    for position, tool in enumerate(wire or ()):
        path = f"tools[{position}]"
        if tool.type == "namespace":
            space = _name(tool, path)
            nested += [(inner, f"{path}.tools[{at}]", space) for at, inner in enumerate(tool.tools or ())]
        elif tool.type in HOSTED_TOOLS:
            ignored[tool.type] = None
        elif tool.type in ("function", "custom"):
            declare(tool, path, None)
        else:
            raise invalid(f"{path}.type: {tool.type[:64]!r} is not known.", param=f"{path}.type")
    # After the others: it is the joined names that make way.
    for tool, path, space in nested:
        declare(tool, path, space)
    return ToolSet(tuple(tools), names, tuple(ignored), tuple(paths))


def read_choice(wire: str | WireChoice | None, tools: ToolSet) -> ToolChoice:
    """Which tools the model may or must call.

    Raises:
        ApiError: 400 if it names a tool that is not declared, or one that the server would have to run.
    """
    if wire is None or wire == "auto":
        return ToolChoice()
    if wire == "none":
        return ToolChoice("none")
    if wire == "required":
        return _forced(tools, ())
    if isinstance(wire, str):
        raise invalid(f"tool_choice must be auto, none, required or an object, got {wire[:64]!r}.", param="tool_choice")
    if wire.type == "allowed_tools":
        return _allowed(wire, tools)
    return _forced(tools, (_find(wire, tools, "tool_choice"),))


def _forced(tools: ToolSet, names: tuple[str, ...]) -> ToolChoice:
    if not tools.tools:
        raise invalid("tool_choice forces a call, but no tool is declared that could be called.", param="tool_choice")
    return ToolChoice("required", names)


def _allowed(wire: WireChoice, tools: ToolSet) -> ToolChoice:
    path = "tool_choice.tools"
    if wire.mode not in ("auto", "required"):
        raise invalid("tool_choice.mode must be auto or required.", param="tool_choice.mode")
    listed = wire.tools or ()
    # Hosted tools were left out of the prompt; here they only narrow what is not there.
    allowed = [choice for choice in listed if choice.type not in HOSTED_TOOLS]
    names = tuple(_find(choice, tools, f"{path}[{at}]") for at, choice in enumerate(allowed))
    if names:
        return ToolChoice("required" if wire.mode == "required" else "auto", names)
    if wire.mode == "required":
        raise invalid(f"{path} lists no tool that could be called.", param=path)
    return ToolChoice("none")


def _find(choice: WireChoice, tools: ToolSet, path: str) -> str:
    """The model's name of the tool that is meant."""
    if choice.type in HOSTED_TOOLS:
        raise invalid(
            f"{path}: {choice.type!r} cannot be called: hosted tools are not run here.",
            param=path,
            code="unsupported_parameter",
        )
    if choice.type not in ("function", "custom"):
        raise invalid(f"{path}.type: {choice.type[:64]!r} is not known.", param=f"{path}.type")
    if not choice.name:
        raise missing(f"{path}.name")
    found = [
        flat
        for flat, known in tools.names.items()
        if known.kind == choice.type
        and (known.name == choice.name or (flat == choice.name and choice.namespace is None))
        and (choice.namespace is None or known.namespace == choice.namespace)
    ]
    exact = [flat for flat in found if flat == choice.name]
    if len(found) != 1 and not exact:
        problem = "is in several namespaces: name one" if found else f"is not declared as a {choice.type} tool"
        raise invalid(f"{path}: {choice.name[:MAX_NAME]!r} {problem}.", param=path)
    return (exact or found)[0]


def _tool(wire: WireTool, flat: str, path: str, limits: Limits) -> Tool:
    if wire.type == "custom":
        return Tool(flat, _custom_description(wire, path), CUSTOM_PARAMETERS, True)
    check_parameters(wire.parameters, f"{path}.parameters", limits)
    return Tool(flat, wire.description, wire.parameters, wire.strict)


def _custom_description(wire: WireTool, path: str) -> str | None:
    form = wire.format
    if form is None or form.type == "text":
        return wire.description
    if form.type != "grammar" or form.syntax not in ("lark", "regex") or form.definition is None:
        raise invalid(
            f"{path}.format must be of type text, or grammar with a syntax (lark, regex) and a definition.",
            param=f"{path}.format",
        )
    kind = "Lark grammar" if form.syntax == "lark" else "regular expression"
    rule = f"The input must match this {kind}:\n{form.definition}"
    return f"{wire.description}\n\n{rule}" if wire.description else rule


def _free_name(wanted: str, names: dict[str, ToolName]) -> str:
    name, number = wanted, 2
    while name in names:
        name, number = f"{wanted}_{number}", number + 1
    return name


def _name(tool: WireTool, path: str) -> str:
    if not tool.name:
        raise missing(f"{path}.name")
    if len(tool.name) > MAX_NAME:
        raise invalid(f"{path}.name is longer than {MAX_NAME} characters.", param=f"{path}.name")
    return tool.name
