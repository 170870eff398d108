"""The body of a Messages request as an IR request."""

from __future__ import annotations

from typing import Any

import msgspec

from millstream.ir.errors import invalid, missing
from millstream.ir.request import ChatRequest, Message, ResponseFormat, Sampling
from millstream.surfaces.anthropic_conversation import WireBlock, WireMessage, conversation, system_message
from millstream.surfaces.anthropic_fields import MESSAGES_FIELDS
from millstream.surfaces.anthropic_tools import Toolbox, WireTool, WireToolChoice
from millstream.surfaces.openai_params import (
    SharedBody,
    check_count,
    decode_body,
    require_model,
    sampling,
    stop_strings,
)
from millstream.surfaces.schemas import schema_format
from millstream.surfaces.service import ServiceBody, service
from millstream.surfaces.template_variables import template_kwargs
from millstream.surfaces.wire import Call, Limits, WireOptions

THINKING = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}


class WireThinking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    budget_tokens: int | None = None
    display: str | None = None


class WireFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    schema: dict[str, Any] | bool | None = None


class WireOutputConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effort: str | None = None
    format: WireFormat | None = None
    task_budget: Any = None


class MessagesBody(ServiceBody, frozen=True, kw_only=True):
    """The honoured fields, as they are on the wire: null is absent."""

    model: str | None = None
    messages: list[WireMessage] | None = None
    max_tokens: int | None = None
    system: str | list[WireBlock] | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stream: bool | None = None
    thinking: WireThinking | None = None
    output_config: WireOutputConfig | None = None
    output_format: WireFormat | None = None
    tools: list[WireTool] | None = None
    tool_choice: WireToolChoice | None = None


def decode(body: bytes, limits: Limits = Limits()) -> Call:  # noqa: B008  (immutable)
    """Read a request.

    Raises:
        ApiError: 400 with the path of the field at fault.
    """
    wire = decode_body(body, MessagesBody, MESSAGES_FIELDS)
    if wire.max_tokens is None:
        raise missing("max_tokens")
    call = _call(wire, _sampling(wire, limits), limits)
    if wire.messages and wire.messages[-1].role == "assistant":
        raise invalid(
            "messages: the last turn must not be the assistant's: an answer is always a new turn.",
            param=f"messages[{len(wire.messages) - 1}]",
            code="unsupported_parameter",
        )
    return call


def decode_count(body: bytes, limits: Limits = Limits()) -> Call:  # noqa: B008  (immutable)
    """Read a request whose tokens are to be counted: the same prompt, and no limit or sampling is needed.

    Raises:
        ApiError: 400 with the path of the field at fault.
    """
    return _call(decode_body(body, MessagesBody, MESSAGES_FIELDS), Sampling(), limits)


def _call(wire: MessagesBody, sampling: Sampling, limits: Limits) -> Call:
    if not wire.messages:
        raise missing("messages") if wire.messages is None else invalid("messages must not be empty.", param="messages")
    check_count("messages", len(wire.messages), limits.messages)
    tools = Toolbox(wire.tools, limits)
    turns: list[Message] = [*system_message(wire.system), *conversation(wire.messages, tools)]
    if not turns:
        raise invalid("messages must not be empty.", param="messages")
    choice, parallel = tools.choice(wire.tool_choice)
    request = ChatRequest(
        model=require_model(wire.model),
        messages=tuple(turns),
        tools=tools.tools(choice),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_format=_response_format(wire, limits),
        template_kwargs=_template_kwargs(wire, limits),
        sampling=sampling,
        reasoning_budget=wire.thinking.budget_tokens if wire.thinking and wire.thinking.type == "enabled" else None,
        service=service(wire),
    )
    hidden = wire.thinking is not None and wire.thinking.display == "omitted"
    options = WireOptions(model=request.model, stream=bool(wire.stream), hide_reasoning=hidden)
    return Call(request, options, tuple(tools.warnings), tools.paths(request.tools))


def _sampling(wire: MessagesBody, limits: Limits) -> Sampling:
    temperature = wire.temperature
    if temperature is not None and not 0 <= temperature <= 1:
        raise invalid(f"temperature must be between 0 and 1, got {temperature}.", param="temperature")
    shared = SharedBody(temperature=temperature, top_p=wire.top_p, top_k=wire.top_k)
    drawn = sampling(shared, limits, max_tokens=wire.max_tokens)
    stops = stop_strings("stop_sequences", wire.stop_sequences, limits)
    return msgspec.structs.replace(drawn, stop=stops)


def _template_kwargs(wire: MessagesBody, limits: Limits) -> dict[str, Any]:
    effort = wire.output_config.effort if wire.output_config is not None else None
    kwargs = template_kwargs(None, effort, limits)
    thinking = wire.thinking
    if thinking is not None:
        if thinking.type not in THINKING:
            expected = ", ".join(THINKING)
            raise invalid(
                f"thinking.type must be one of {expected}, got {thinking.type[:64]!r}.", param="thinking.type"
            )
        # Templates know the switch by either name.
        kwargs["enable_thinking"] = kwargs["thinking"] = THINKING[thinking.type]
        if thinking.type == "enabled":
            if thinking.budget_tokens is None:
                raise missing("thinking.budget_tokens")
            if thinking.budget_tokens < 1:
                raise invalid("thinking.budget_tokens must be at least 1.", param="thinking.budget_tokens")
            kwargs["thinking_budget"] = thinking.budget_tokens
    return kwargs


def _response_format(wire: MessagesBody, limits: Limits) -> ResponseFormat:
    path, form = "output_config.format", wire.output_config.format if wire.output_config else None
    if form is None:
        path, form = "output_format", wire.output_format
    if form is None:
        return ResponseFormat()
    if form.type != "json_schema":
        raise invalid(f"{path}.type must be json_schema, got {form.type[:64]!r}.", param=f"{path}.type")
    return schema_format(form.schema, f"{path}.schema", limits)
