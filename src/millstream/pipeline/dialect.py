"""How one model reads conversations and writes answers: its template, its tool calls, its reasoning."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from millstream.ir.errors import invalid
from millstream.ir.request import ChatRequest, Message, Tool
from millstream.models.interfaces import ChatTemplate, Tokenizer
from millstream.parsing.events import Parser
from millstream.parsing.reasoning.format import NONE
from millstream.parsing.registry import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    create_parser,
    detect_reasoning_format,
    detect_tool_format,
)
from millstream.parsing.tools import generic
from millstream.pipeline.calls import new_call_id, new_mistral_id
from millstream.pipeline.grammar import ReasoningState, Rule, compose, lark_rule, lenient, response_rule

_KNOWS_TOOLS = re.compile(r"\btools\b")


class Turn(NamedTuple):
    """One chat request, ready for the engine.

    Attributes:
        prompt: the rendered conversation.
        parser: makes the parser of each choice; None: all its text is visible.
        grammar: what the answer must be, as `millstream.pipeline.grammar` writes it; None: anything.
    """

    prompt: str
    parser: Callable[[], Parser] | None
    grammar: str | None


class Dialect:
    """Template and formats of one model.

    Args:
        tool_format, reasoning_format: names of `millstream.parsing.registry`; None: what the template teaches.

    Raises:
        ValueError: there is no format of this name.
    """

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: Tokenizer,
        *,
        tool_format: str | None = None,
        reasoning_format: str | None = None,
    ) -> None:
        self._template = template
        self._control_tokens = _control_tokens(tokenizer)
        source, names = template.source, self._control_tokens.keys()
        self.tool_format = tool_format or detect_tool_format(source, names)
        self.reasoning_format = reasoning_format or detect_reasoning_format(source, names)
        _require("tool format", self.tool_format, TOOL_FORMATS)
        _require("reasoning format", self.reasoning_format, REASONING_FORMATS)
        self._renders_tools = bool(_KNOWS_TOOLS.search(source)) and self.tool_format != generic.FORMAT.name
        self._reasoning = REASONING_FORMATS[self.reasoning_format]
        self.new_call_id = new_mistral_id if self.tool_format == "mistral" else new_call_id

    def turn(self, request: ChatRequest) -> Turn:
        """Render a request and decide how its answer is read and constrained.

        Raises:
            ApiError: 400; the template refuses the conversation, or a forced call cannot be held to its form.
        """
        tools = request.tools if request.tool_choice.mode != "none" else ()
        calls, format_name = self._call_rule(request, tools)
        prompt = self._render(request, tools, native=self._renders_tools and format_name == self.tool_format)
        state = self._state(prompt)
        parser = self._parser(format_name, tools, opened=state == "open")
        rules = self._rules(request, calls)
        grammar = compose(rules, self._reasoning, state, self._control_tokens) if rules else None
        return Turn(prompt, parser, grammar)

    def _call_rule(self, request: ChatRequest, tools: tuple[Tool, ...]) -> tuple[Rule | None, str]:
        """The grammar of calls if they must be held to one, and the tool format that it is for."""
        if not tools:
            return None, self.tool_format
        choice = request.tool_choice
        required = choice.mode == "required"
        if not (required or choice.names or any(tool.strict for tool in tools)):
            return None, self.tool_format
        only_calls = required or request.response_format.kind != "text"
        known = [tool if tool.strict else _lenient(tool) for tool in tools]
        names = [self.tool_format, generic.FORMAT.name] if required and self._may_be_generic else [self.tool_format]
        for name in names:
            text = TOOL_FORMATS[name].constraint(
                known,
                required=only_calls,
                names=choice.names,
                parallel=request.parallel_tool_calls,
                control_tokens=self._control_tokens,
            )
            if text is not None:
                return lark_rule(text), name
        if required:
            raise invalid(
                f"A tool call cannot be required of this model: its format {self.tool_format!r} has no grammar.",
                param="tool_choice",
                code="unsupported_parameter",
            )
        return None, self.tool_format

    @property
    def _may_be_generic(self) -> bool:
        """Whether the generic format can stand in: not where one parser does reasoning and calls."""
        return TOOL_FORMATS[self.tool_format].reasoning is None and bool(
            self._reasoning.open or self._reasoning is NONE
        )

    def _rules(self, request: ChatRequest, calls: Rule | None) -> list[Rule]:
        """The alternatives of a constrained answer; none: it is free."""
        response = response_rule(request.response_format)
        if response is not None and not (self._reasoning.open or self._reasoning is NONE):
            raise invalid(
                f"Structured output is not there yet for models with the reasoning format {self.reasoning_format!r}.",
                param="response_format",
                code="unsupported_parameter",
            )
        if calls is None or request.tool_choice.mode == "required":
            return [rule for rule in (calls or response,) if rule is not None]
        return [rule for rule in (calls, response) if rule is not None]

    def _render(self, request: ChatRequest, tools: tuple[Tool, ...], *, native: bool) -> str:
        if native:
            return self._template.render(request.messages, tools=tools, kwargs=request.template_kwargs)
        messages: tuple[Message, ...] | list[Message] = request.messages
        if tools or any(message.role == "tool" or message.tool_calls for message in messages):
            messages = generic.rewrite(messages, tools, request.tool_choice, parallel=request.parallel_tool_calls)
        return self._template.render(messages, kwargs=request.template_kwargs)

    def _state(self, prompt: str) -> ReasoningState:
        """What the end of the prompt says of reasoning."""
        if not self._reasoning.open:
            return "none"
        end = prompt[-256:].rstrip()
        if end.endswith(self._reasoning.open):
            return "open"
        return "none" if end.endswith(self._reasoning.close) else "possible"

    def _parser(self, format_name: str, tools: tuple[Tool, ...], *, opened: bool) -> Callable[[], Parser] | None:
        if not tools and self.reasoning_format == NONE.name:
            return None
        return lambda: create_parser(format_name, self.reasoning_format, tools, reasoning_opened=opened)


def _lenient(tool: Tool) -> Tool:
    return replace(tool, parameters=lenient(tool.parameters or {}))


def _control_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Ids of the control tokens by name."""
    return {
        tokenizer.token_bytes(token_id).decode("utf-8", "replace"): token_id
        for token_id in range(tokenizer.vocab_size)
        if tokenizer.is_special(token_id)
    }


def _require(what: str, name: str, known: dict[str, Any]) -> None:
    if name not in known:
        raise ValueError(f"there is no {what} {name!r}; known: {', '.join(sorted(known))}")
