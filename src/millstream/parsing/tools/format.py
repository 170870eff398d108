"""What a tool format is: how to recognise it, parse it, and constrain it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.ir.request import Tool
from millstream.parsing.scan.scanner import Scanner, Steps


class Toolbox:
    """The tools of one request, by name."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def properties(self, name: str) -> dict[str, Any]:
        """Schemas of a tool's parameters in their order; empty for an unknown tool or a schema without any."""
        tool = self._tools.get(name)
        schema = tool.parameters if tool is not None else None
        properties = schema.get("properties") if isinstance(schema, dict) else None
        return properties if isinstance(properties, dict) else {}


@dataclass(frozen=True)
class Constraint:
    """A grammar that an answer with calls must match.

    Attributes:
        lark: the grammar in llguidance's Lark dialect.
        control_tokens: names of the control tokens that it mentions as ``<name>``; a tokenizer that lacks one of them
            as a control token cannot use it as it stands.
    """

    lark: str
    control_tokens: tuple[str, ...] = ()


class Constrain(Protocol):
    """Writes a format's grammar."""

    def __call__(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> Constraint:
        """
        Args:
            tools: those that may be called, at least one.
            required: at least one call, and no text beside calls; otherwise free text and any number of calls.
            parallel: whether more than one call may come.
        """
        ...


@dataclass(frozen=True)
class ToolFormat:
    """One way in which models write calls.

    Attributes:
        name: as in flags.
        steps: makes the parser of one choice: a generator over a `Scanner`.
        detect: whether a chat template (its source, and the names of the tokenizer's control tokens) teaches it.
        constrain: its grammar; None if no grammar can hold.
        reasoning: name of the reasoning format that the parser includes, if it does its own split.
    """

    name: str
    steps: Callable[[Toolbox], Callable[[Scanner], Steps[None]]]
    detect: Callable[[str, Collection[str]], bool] = field(default=lambda source, tokens: False)
    constrain: Constrain | None = None
    reasoning: str | None = None

    def constraint(
        self, tools: Sequence[Tool], *, required: bool, names: Collection[str] = (), parallel: bool = True
    ) -> Constraint | None:
        """The grammar of an answer.

        Args:
            names: narrows the choice to these tools; empty: all.

        Returns:
            None if the format has no grammar or there is nothing to call.
        """
        chosen = [tool for tool in tools if not names or tool.name in names]
        if self.constrain is None or not chosen:
            return None
        return self.constrain(chosen, required=required, parallel=parallel)
