"""How one model reads conversations and writes answers: its template, its tool calls, its reasoning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from millstream.ir.errors import ApiError, invalid
from millstream.ir.request import ChatRequest, Tool
from millstream.ir.turns import results_in_call_order
from millstream.models.interfaces import ChatTemplate, Tokenizer
from millstream.parsing.events import Parser
from millstream.parsing.reasoning.format import HARMONY, NONE
from millstream.parsing.registry import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    create_parser,
    detect_reasoning_format,
    detect_tool_format,
)
from millstream.parsing.tools import generic, harmony
from millstream.parsing.tools.shared.schemas import CannotHold
from millstream.pipeline.calls import new_call_id, new_mistral_id
from millstream.pipeline.grammar import (
    AnswerGrammar,
    ReasoningState,
    Rule,
    compose,
    for_calls,
    lark_rule,
    response_rule,
)

_KNOWS_TOOLS = re.compile(r"\btools\b")


class Turn(NamedTuple):
    """One chat request, ready for the engine.

    Attributes:
        prompt: the rendered conversation.
        parser: makes the parser of each choice; None: all its text is visible.
        grammar: what the answer must be; None: anything.
        thoughts: text that opens the reasoning at the beginning of the answer (empty: the prompt has), and text that
            closes it; None: there will be none.
    """

    prompt: str
    parser: Callable[[], Parser] | None
    grammar: AnswerGrammar | None
    thoughts: tuple[str, str] | None = None


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
        if HARMONY.name in (self.tool_format, self.reasoning_format):  # one parser reads both
            self.tool_format = self.reasoning_format = HARMONY.name
        self._renders_tools = bool(_KNOWS_TOOLS.search(source)) and self.tool_format != generic.FORMAT.name
        self._reasoning = REASONING_FORMATS[self.reasoning_format]
        self.new_call_id = new_mistral_id if self.tool_format == "mistral" else new_call_id

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Ids of the tokenizer's control tokens by name."""
        return self._control_tokens

    def turn(self, request: ChatRequest) -> Turn:
        """Render a request and decide how its answer is read and constrained.

        Raises:
            ApiError: 400; the template refuses the conversation, or the model cannot be held to what is asked.
        """
        tools = request.tools if request.tool_choice.mode != "none" else ()
        constrained = _constrained(request, tools)
        calls, format_name = self._call_rule(request, constrained)
        response = self._response_rule(request)
        prompt = self._render(request, tools, native=self._renders_tools and format_name == self.tool_format)
        state = self._state(prompt)
        parser = self._parser(format_name, tools, opened=state == "open")
        thoughts = self._thoughts(state)
        once = self._channels and thoughts is not None and request.reasoning_budget is not None
        if once and calls is None and response is None:  # else thoughts that were ended would begin anew
            calls = lark_rule(harmony.messages(self._control_tokens))
        if calls is None and response is None:
            return Turn(prompt, parser, None, thoughts)
        text = compose(calls, response, self._reasoning, state, self._control_tokens, once=once)
        grammar = AnswerGrammar(text, calls, constrained, response, request.response_format)
        return Turn(prompt, parser, grammar, thoughts)

    def _thoughts(self, state: ReasoningState) -> tuple[str, str] | None:
        """See `Turn.thoughts`."""
        if self._channels:
            return harmony.THOUGHTS if harmony.held(self._control_tokens) else None
        if state == "none":
            return None
        return "" if state == "open" else self._reasoning.open, self._reasoning.close

    def _call_rule(self, request: ChatRequest, tools: tuple[tuple[int, Tool], ...]) -> tuple[Rule | None, str]:
        """The grammar of calls if they are held to one, and the tool format that it is for."""
        if not tools:
            return None, self.tool_format
        required = request.tool_choice.mode == "required"
        # A weak model does not stop calling by itself, and of one named function one call is wanted.
        single = required and len(tools) == 1
        names = [self.tool_format]
        if required and not self._channels:
            names.append(generic.FORMAT.name)
        for name in names:
            try:
                text = TOOL_FORMATS[name].constraint(
                    [tool for _, tool in tools],
                    # A free answer is an alternative of its own if it has a form.
                    required=required or request.response_format.kind != "text",
                    parallel=request.parallel_tool_calls and not single,
                    control_tokens=self._control_tokens,
                )
            except CannotHold as error:
                raise self._not_held(error, tools) from None
            if text is not None:
                return lark_rule(text), name
        if required:
            raise self._unsupported("A tool call cannot be required", "tool_choice")
        return None, self.tool_format

    def _response_rule(self, request: ChatRequest) -> Rule | None:
        """The grammar of visible text; none if there will be calls alone."""
        if request.tool_choice.mode == "required":
            return None
        rule = response_rule(request.response_format)
        if rule is not None and self._channels and not harmony.held(self._control_tokens):
            raise self._unsupported("The answer cannot have a form", "response_format")
        return rule

    @property
    def _channels(self) -> bool:
        """Whether every part of an answer is a message with a header."""
        return self._reasoning is HARMONY

    def _not_held(self, error: CannotHold, tools: tuple[tuple[int, Tool], ...]) -> ApiError:
        position = next(position for position, tool in tools if tool.name == error.tool)
        where = f" at {error.place}" if error.place else ""
        return invalid(
            f"tools[{position}]: the parameters of {error.tool!r} cannot be enforced{where} in the tool format "
            f"{self.tool_format!r} of this model: {error.why}.",
            param=f"tools[{position}]",
            code="invalid_schema",
        )

    def _unsupported(self, what: str, param: str) -> ApiError:
        return invalid(
            f"{what} for models that write tool calls in the format {self.tool_format!r}.",
            param=param,
            code="unsupported_parameter",
        )

    def _render(self, request: ChatRequest, tools: tuple[Tool, ...], *, native: bool) -> str:
        messages = results_in_call_order(request.messages)
        if native:
            return self._template.render(messages, tools=tools, kwargs=request.template_kwargs)
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


def _constrained(request: ChatRequest, tools: tuple[Tool, ...]) -> tuple[tuple[int, Tool], ...]:
    """The tools that may be called, with their positions, if calls are to be held to a grammar.

    They are where a call is required, where the choice is narrowed, where a tool is strict, and beside an answer that
    has a form itself. Otherwise the model is free, and so are its arguments.
    """
    choice = request.tool_choice
    formed = request.response_format.kind != "text"
    if not (choice.mode == "required" or choice.names or formed or any(tool.strict for tool in tools)):
        return ()
    return tuple(
        (position, for_calls(tool))
        for position, tool in enumerate(tools)
        if not choice.names or tool.name in choice.names
    )


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
