"""Conversations as the model wants to read them: the chat template of the model file, or a plain one if it has none.

Templates see what Transformers and vLLM give them: messages and tools as dictionaries in OpenAI's form, arguments of
tool calls as objects, the names of special tokens, ``add_generation_prompt``, and the caller's own variables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError

from millstream.ir.errors import ApiError, invalid
from millstream.ir.request import Message, Tool, ToolCall
from millstream.models.errors import ModelFileError
from millstream.models.sandbox import ChatEnvironment, TemplateBudgetError, TemplateRefusal, render_bounded
from millstream.models.turns import simpler_forms

CHATML_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For models without a template whose vocabulary has the ChatML markers."""

PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{{ message.content + '\n\n' }}"
    "{% else %}{{ message.role | capitalize + ': ' + message.content + '\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""For base models, which were never taught a form of conversation: a dialogue as written text has it."""

REFUSED = "template_refused"
"""Code of the error when a template raises its own complaint."""

_RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})
_REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")


class JinjaChatTemplate:
    """`millstream.models.interfaces.ChatTemplate` from Jinja source.

    Attributes:
        is_fallback: the model has no template of its own, so its answers may not follow the conversation.

    Raises:
        ModelFileError: the source is not a valid template.
    """

    def __init__(self, source: str, *, variables: Mapping[str, str] | None = None, is_fallback: bool = False) -> None:
        self.is_fallback = is_fallback
        self._source = source
        self._variables = {"bos_token": "", "eos_token": "", **(variables or {})}
        self._environment = ChatEnvironment()
        self._template = _compile(self._environment, source)
        self._knows_developer = "developer" in source

    @property
    def source(self) -> str:
        return self._source

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        kwargs: dict[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt text. Special tokens are written as text; `GGUFTokenizer.encode` reads them.

        ``kwargs`` are variables of the template such as ``enable_thinking``. A conversation that the template refuses
        is tried in the forms of `millstream.models.turns`.

        Raises:
            ApiError: 400 if the template refuses the conversation (with its own words) or cannot render it.
        """
        for name in kwargs or {}:
            if name in _RESERVED:
                raise invalid(f"'{name}' is set by the server and cannot be given.", param="chat_template_kwargs")
        variables: dict[str, Any] = {
            **self._variables,
            "documents": None,
            **(kwargs or {}),
            "tools": [_tool(tool) for tool in tools] or None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._conversation(messages, variables)
        except ApiError as error:
            if error.code != REFUSED:
                raise
            for form in simpler_forms(messages):
                with suppress(ApiError):
                    return self._conversation(form, variables)
            raise

    def _conversation(self, messages: Sequence[Message], variables: dict[str, Any]) -> str:
        try:
            return self._render(variables | {"messages": self._messages(messages, parse_arguments=True)})
        except TypeError as error:
            # Some templates put the arguments of calls together as text.
            if not any(message.tool_calls for message in messages):
                raise _failed(error) from None
        return self._render(variables | {"messages": self._messages(messages, parse_arguments=False)}, retried=True)

    def _render(self, variables: dict[str, Any], *, retried: bool = False) -> str:
        try:
            return render_bounded(self._environment, self._template, variables)
        except TemplateRefusal as error:
            raise invalid(
                f"The model's chat template refuses this conversation: {error}",
                param="messages",
                code=REFUSED,
            ) from None
        except TemplateBudgetError as error:
            raise invalid(f"The model's chat template was stopped: {error}.", param="messages") from None
        except TypeError as error:
            if not retried:
                raise
            raise _failed(error) from None
        except (TemplateError, ArithmeticError, AttributeError, LookupError, ValueError, RecursionError) as error:
            raise _failed(error) from None
        except MemoryError:
            raise invalid("The model's chat template was stopped: it used too much memory.", param="messages") from None

    def _messages(self, messages: Sequence[Message], *, parse_arguments: bool) -> list[dict[str, Any]]:
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        return [self._message(message, names, parse_arguments=parse_arguments) for message in messages]

    def _message(self, message: Message, names: Mapping[str, str], *, parse_arguments: bool) -> dict[str, Any]:
        role = "system" if message.role == "developer" and not self._knows_developer else message.role
        out: dict[str, Any] = {"role": role, "content": message.content}
        if message.reasoning is not None:
            out |= dict.fromkeys(_REASONING_NAMES, message.reasoning)
        if message.tool_calls:
            out["tool_calls"] = [_call(call, parse_arguments=parse_arguments) for call in message.tool_calls]
        if message.tool_call_id is not None:
            out["tool_call_id"] = message.tool_call_id
        name = message.name or (names.get(message.tool_call_id or "") if message.role == "tool" else None)
        if name is not None:
            out["name"] = name
        return out


def _compile(environment: ChatEnvironment, source: str) -> Template:
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise ModelFileError(f"the chat template is not valid (line {error.lineno}): {error.message}") from None
    except (TemplateError, RecursionError, MemoryError, SyntaxError, ValueError) as error:
        raise ModelFileError(f"the chat template cannot be compiled: {error}") from None


def _failed(error: Exception) -> ApiError:
    what = "it nests too deeply" if isinstance(error, RecursionError) else str(error) or type(error).__name__
    return invalid(f"The model's chat template cannot render this conversation: {what}", param="messages")


def _call(call: ToolCall, *, parse_arguments: bool) -> dict[str, Any]:
    arguments: Any = call.arguments
    if parse_arguments:
        try:
            arguments = json.loads(call.arguments) if call.arguments.strip() else {}
        except (ValueError, RecursionError):
            arguments = call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool(tool: Tool) -> dict[str, Any]:
    """OpenAI's form without absent fields; ``strict`` is for the server, not for the model."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    return {"type": "function", "function": function}
