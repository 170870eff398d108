"""The body of a chat completions request as an IR request."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from millstream.ir.errors import invalid, missing
from millstream.ir.request import ChatRequest, Message, Output, Role, ToolCall
from millstream.surfaces.openai_fields import CHAT_FIELDS
from millstream.surfaces.openai_labels import TIERS, check_metadata, one_of
from millstream.surfaces.openai_params import (
    MAX_INT32,
    SharedBody,
    check_count,
    choice_count,
    decode_body,
    require_model,
    sampling,
    stream_flags,
)
from millstream.surfaces.openai_tools import (
    WireResponseFormat,
    WireTool,
    WireToolChoice,
    response_format,
    tool_choice,
    tools,
)
from millstream.surfaces.service import service
from millstream.surfaces.template_variables import template_kwargs
from millstream.surfaces.wire import Call, Limits, WireOptions

ROLES: tuple[str, ...] = get_args(Role)


class WirePart(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None
    refusal: str | None = None


class WireFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class WireToolCall(msgspec.Struct, frozen=True):
    id: str
    function: WireFunction | None = None
    type: str | None = None


class WireMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | list[WirePart] | None = None
    name: str | None = None
    tool_calls: list[WireToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    function_call: Any = None


class ChatBody(SharedBody, frozen=True, kw_only=True):
    messages: list[WireMessage] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    thinking_token_budget: int | None = None
    tools: list[WireTool] | None = None
    tool_choice: str | WireToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: WireResponseFormat | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    service_tier: str | None = None


class ChatOptions(WireOptions, frozen=True, kw_only=True):
    """``tier``: the answer says which service tier served it. ``store``: the client wants it kept, then with
    ``metadata``, the ``messages`` of the request, and what else was ``asked`` for."""

    tier: bool = False
    store: bool = False
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    messages: tuple[dict[str, Any], ...] = ()
    asked: dict[str, Any] = msgspec.field(default_factory=dict)


def decode(body: bytes, limits: Limits = Limits()) -> Call:  # noqa: B008  (immutable)
    """Read a request.

    Raises:
        ApiError: 400 with the path of the field at fault.
    """
    wire = decode_body(body, ChatBody, CHAT_FIELDS)
    stream, usage, running = stream_flags(wire)
    logprobs = _logprobs(wire, limits)
    max_name = "max_tokens" if wire.max_completion_tokens is None else "max_completion_tokens"
    max_tokens = wire.max_tokens if wire.max_completion_tokens is None else wire.max_completion_tokens
    token_ids = bool(wire.return_token_ids)
    declared = tools(wire.tools, limits)
    request = ChatRequest(
        model=require_model(wire.model),
        messages=_messages(wire.messages, limits),
        tools=declared,
        tool_choice=tool_choice(wire.tool_choice, declared),
        parallel_tool_calls=wire.parallel_tool_calls is not False,
        response_format=response_format(wire.response_format, limits),
        template_kwargs=template_kwargs(wire.chat_template_kwargs, wire.reasoning_effort, limits),
        sampling=sampling(wire, limits, max_tokens=max_tokens, max_name=max_name),
        reasoning_budget=_budget(wire),
        # Running usage is counted from the ids of each delta.
        output=Output(logprobs=logprobs, token_ids=token_ids or running),
        n=choice_count(wire.n, limits),
        service=service(wire),
    )
    options = ChatOptions(
        model=request.model,
        stream=stream,
        choices=request.n,
        usage=usage,
        running_usage=running,
        token_ids=token_ids,
        logprobs=logprobs is not None,
        tier=one_of("service_tier", wire.service_tier, TIERS) is not None,
        store=bool(wire.store),
        metadata=_metadata(wire),
        messages=tuple(map(_kept_message, wire.messages or ())) if wire.store else (),
        asked=_asked(wire, request) if wire.store else {},
    )
    return Call(request, options)


def _metadata(wire: ChatBody) -> dict[str, str]:
    if wire.metadata and not wire.store:
        # OpenAI's rule and words: labels of something that is not kept are lost.
        raise invalid("The 'metadata' parameter is only allowed when 'store' is enabled.", param="metadata")
    return check_metadata(wire.metadata or {})


def _kept_message(wire: WireMessage) -> dict[str, Any]:
    """A message of a stored completion, as lists of them show it."""
    given = _as_sent(wire)
    parts = given.get("content") if isinstance(wire.content, list) else None
    content = _content(wire.content, wire.role, "") if isinstance(wire.content, list) else wire.content
    return {"name": None, **given, "content": content, "content_parts": parts}


def _asked(wire: ChatBody, request: ChatRequest) -> dict[str, Any]:
    """What a stored completion repeats of its request."""
    return {
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "presence_penalty": request.sampling.presence_penalty,
        "frequency_penalty": request.sampling.frequency_penalty,
        "seed": wire.seed,
        "tools": _as_sent(wire.tools),
        "tool_choice": _as_sent(wire.tool_choice),
        "response_format": _as_sent(wire.response_format),
    }


def _as_sent(wire: Any) -> Any:
    """Builtins without the members that the client did not send."""
    if isinstance(wire, list):
        return [_as_sent(each) for each in wire]
    if not isinstance(wire, msgspec.Struct):
        return wire
    members = {name: _as_sent(getattr(wire, name)) for name in wire.__struct_fields__}
    return {name: value for name, value in members.items() if value is not None}


def _budget(wire: ChatBody) -> int | None:
    budget = wire.thinking_token_budget
    if budget is not None and not 0 <= budget <= MAX_INT32:
        raise invalid(f"thinking_token_budget must be between 0 and {MAX_INT32}.", param="thinking_token_budget")
    return budget


def _logprobs(wire: ChatBody, limits: Limits) -> int | None:
    top = wire.top_logprobs
    if top is not None and not 0 <= top <= limits.top_logprobs:
        raise invalid(f"top_logprobs must be between 0 and {limits.top_logprobs}.", param="top_logprobs")
    if not wire.logprobs:
        if top:
            raise invalid("top_logprobs is only allowed when logprobs is true.", param="top_logprobs")
        return None
    return top or 0


def _messages(wire: list[WireMessage] | None, limits: Limits) -> tuple[Message, ...]:
    if wire is None:
        raise missing("messages")
    if not wire:
        raise invalid("messages must not be empty.", param="messages")
    check_count("messages", len(wire), limits.messages)
    return tuple(_message(message, f"messages[{position}]") for position, message in enumerate(wire))


def _message(wire: WireMessage, path: str) -> Message:
    if wire.role not in ROLES:
        raise invalid(
            f"{path}.role must be one of {', '.join(ROLES)}, got {wire.role[:64]!r}.",
            param=f"{path}.role",
        )
    if wire.function_call is not None:
        raise invalid(
            f"{path}.function_call is not supported: use tool_calls.",
            param=f"{path}.function_call",
            code="unsupported_parameter",
        )
    if wire.role == "tool" and not wire.tool_call_id:
        raise missing(f"{path}.tool_call_id")
    if wire.content is None and wire.role != "assistant":
        raise missing(f"{path}.content")
    content = _content(wire.content, wire.role, path)
    assistant = wire.role == "assistant"
    return Message(
        role=wire.role,  # type: ignore[arg-type]  # checked against ROLES above
        content=content or (wire.refusal or "" if assistant else ""),
        reasoning=(wire.reasoning_content or wire.reasoning) if assistant else None,
        tool_calls=_tool_calls(wire.tool_calls, path) if assistant else (),
        tool_call_id=wire.tool_call_id if wire.role == "tool" else None,
        name=wire.name,
    )


def _content(wire: str | list[WirePart] | None, role: str, path: str) -> str:
    if wire is None or isinstance(wire, str):
        return wire or ""
    return "".join(_part(part, role, f"{path}.content[{position}]") for position, part in enumerate(wire))


def _part(part: WirePart, role: str, path: str) -> str:
    if part.type == "text":
        if part.text is None:
            raise missing(f"{path}.text")
        return part.text
    if part.type == "refusal" and role == "assistant":
        if part.refusal is None:
            raise missing(f"{path}.refusal")
        return part.refusal
    raise invalid(
        f"{path}: parts of type {part.type[:64]!r} are not supported; send text parts only.",
        param=path,
        code="unsupported_parameter",
    )


def _tool_calls(wire: list[WireToolCall] | None, path: str) -> tuple[ToolCall, ...]:
    calls = []
    for position, call in enumerate(wire or ()):
        where = f"{path}.tool_calls[{position}]"
        if call.type not in (None, "function"):
            raise invalid(f"{where}.type must be 'function', got {call.type[:64]!r}.", param=f"{where}.type")
        if call.function is None:
            raise missing(f"{where}.function")
        calls.append(ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments))
    return tuple(calls)
