"""Tools of a Messages request: which are declared, which of them are offered, and how they may be chosen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from millstream.ir.errors import invalid, missing
from millstream.ir.request import Tool, ToolChoice
from millstream.surfaces.schemas import check_parameters, check_tool_count
from millstream.surfaces.wire import Limits

TOOL_NAME_LENGTH = 256


class WireTool(msgspec.Struct, frozen=True):
    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class WireToolChoice(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Toolbox:
    """Tools as a conversation changes them: a deferred tool is offered once something names it."""

    def __init__(self, wire: list[WireTool] | None, limits: Limits) -> None:
        self._limits = limits
        self.warnings: list[str] = []
        self._declared: dict[str, Tool] = {}
        self._paths: dict[str, str] = {}
        self._offered: dict[str, None] = {}
        self._foreign: set[str] = set()
        for position, tool in enumerate(wire or ()):
            self.declare(tool, f"tools[{position}]")

    def declare(self, wire: WireTool, path: str) -> None:
        """Add a tool. One that Anthropic's servers run, or whose schema only their models know, is left out."""
        if wire.type not in (None, "custom") and wire.input_schema is None:
            name = wire.name or wire.type or ""
            self._foreign.add(name)
            self.warnings.append(
                f"{path}: no server-side tools here, left out {name[:64]!r} ({(wire.type or '')[:64]})"
            )
            return
        if not wire.name:
            raise missing(f"{path}.name")
        if len(wire.name) > TOOL_NAME_LENGTH:
            raise invalid(f"{path}.name: a name has at most {TOOL_NAME_LENGTH} characters.", param=f"{path}.name")
        if wire.input_schema is None:
            raise missing(f"{path}.input_schema")
        if wire.name in self._declared:
            raise invalid(f"{path}.name: two tools have the name {wire.name[:64]!r}.", param=f"{path}.name")
        check_parameters(wire.input_schema, f"{path}.input_schema", self._limits)
        self._declared[wire.name] = Tool(wire.name, wire.description, wire.input_schema, wire.strict)
        self._paths[wire.name] = path
        check_tool_count(len(self._declared), self._limits)
        if not wire.defer_loading:
            self._offered[wire.name] = None

    def offer(self, name: str, path: str) -> None:
        """Offer a declared tool from now on. The name of a tool that was left out is no fault."""
        if name in self._declared:
            self._offered[name] = None
        elif name not in self._foreign:
            raise invalid(f"{path}: no tool has the name {name[:64]!r}.", param=path)

    def withdraw(self, name: str) -> None:
        """Offer a tool no longer."""
        self._offered.pop(name, None)

    def tools(self, choice: ToolChoice) -> tuple[Tool, ...]:
        """What is offered, in the order of declaration; a tool that is forced is offered in any case."""
        return tuple(tool for name, tool in self._declared.items() if name in self._offered or name in choice.names)

    def paths(self, tools: Iterable[Tool]) -> tuple[str, ...]:
        """Where each of the tools was declared."""
        return tuple(self._paths[tool.name] for tool in tools)

    def choice(self, wire: WireToolChoice | None) -> tuple[ToolChoice, bool]:
        """The choice, and whether calls may be parallel.

        Raises:
            ApiError: 400 for an unknown type or name, or where a call is forced and no tool can be called.
        """
        if wire is None:
            return ToolChoice(), True
        parallel = not wire.disable_parallel_tool_use
        if wire.type in ("auto", "none"):
            return ToolChoice(wire.type), parallel  # type: ignore[arg-type]  # checked just now
        if wire.type == "any":
            if not self._offered:
                raise invalid("tool_choice: 'any' needs a tool that this server can offer.", param="tool_choice")
            return ToolChoice("required"), parallel
        if wire.type != "tool":
            raise invalid(
                f"tool_choice.type must be auto, any, tool or none, got {wire.type[:64]!r}.", param="tool_choice.type"
            )
        if not wire.name:
            raise missing("tool_choice.name")
        if wire.name in self._foreign:
            raise invalid(
                f"tool_choice: {wire.name[:64]!r} is a tool of Anthropic's servers, which is not here.",
                param="tool_choice.name",
                code="unsupported_parameter",
            )
        if wire.name not in self._declared:
            raise invalid(f"tool_choice: no tool has the name {wire.name[:64]!r}.", param="tool_choice.name")
        return ToolChoice("required", (wire.name,)), parallel
