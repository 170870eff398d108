"""What a tool format is: how to recognise it, parse it, and constrain it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.ir.request import Tool
from millstream.parsing.scan.scanner import Scanner, Steps
from millstream.parsing.tools.shared.schemas import branches, resolved


class Toolbox:
    """The tools of one request, by name."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def needs_arguments(self, name: str) -> bool:
        """Whether a tool's schema has parameters that must be given."""
        tool = self._tools.get(name)
        return tool is not None and isinstance(tool.parameters, dict) and bool(tool.parameters.get("required"))

    def properties(self, name: str) -> dict[str, Any]:
        """Schemas of a tool's parameters in their order, as the alternatives that they allow; empty for an unknown tool
        or a schema without any."""
        tool = self._tools.get(name)
        schema = tool.parameters if tool is not None else None
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(schema, dict) or not isinstance(properties, dict):
            return {}
        return {key: {"anyOf": list(branches(resolved(value, schema), schema))} for key, value in properties.items()}


class Constrain(Protocol):
    """Writes a format's grammar."""

    def __call__(
        self, tools: Sequence[Tool], *, required: bool, parallel: bool, control_tokens: Mapping[str, int]
    ) -> str | None:
        """As `ToolFormat.constraint`, for the tools that may be called: at least one."""
        ...


@dataclass(frozen=True)
class ToolFormat:
    """One way in which models write calls.

    Attributes:
        name: as in flags.
        steps: makes the parser of one choice: a generator over a `Scanner`.
        detect: whether a chat template (its source, and the names of the tokenizer's control tokens) teaches it.
        constrain: writes its grammar; None if no grammar can hold.
        reasoning: name of the reasoning format that the parser includes, if it does its own split.
    """

    name: str
    steps: Callable[[Toolbox], Callable[[Scanner], Steps[None]]]
    detect: Callable[[str, Collection[str]], bool] = field(default=lambda source, tokens: False)
    constrain: Constrain | None = None
    reasoning: str | None = None

    def constraint(
        self,
        tools: Sequence[Tool],
        *,
        required: bool,
        names: Collection[str] = (),
        parallel: bool = True,
        control_tokens: Mapping[str, int] | None = None,
    ) -> str | None:
        """The grammar of an answer, in llguidance's Lark dialect. It holds from the end of reasoning on, and constrains
        arguments by their tool's schema.

        Args:
            required: at least one call, and no text beside calls; otherwise also free text.
            names: narrows the choice to these tools; empty: all.
            parallel: whether more than one call may come. Without ``required`` it may not exclude further calls, as
                text after a call is free; the pipeline ends the answer at the first `CallEnd`.
            control_tokens: ids of the tokenizer's control tokens by name; a marker among them is matched as that token,
                any other as text.

        Returns:
            None if the format has no grammar for this case, or there is nothing to call.
        """
        chosen = [tool for tool in tools if not names or tool.name in names]
        if self.constrain is None or not chosen:
            return None
        return self.constrain(chosen, required=required, parallel=parallel, control_tokens=control_tokens or {})
