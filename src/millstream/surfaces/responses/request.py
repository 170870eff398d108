"""The body of a Responses request as an IR request.

Two steps, as the conversation may begin in stored answers: `parse` reads the body and knows which stored things it
needs, `build` puts the request together once they are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from millstream.ir.errors import invalid, missing
from millstream.ir.request import ChatRequest, Message, Output, ResponseFormat
from millstream.surfaces.openai_labels import TIERS, check_metadata, one_of
from millstream.surfaces.openai_params import (
    SharedBody,
    check_count,
    check_depth,
    decode_body,
    read_json,
    require_model,
    sampling,
)
from millstream.surfaces.responses.fields import INCLUDABLE, RESPONSES_FIELDS, SAMPLED
from millstream.surfaces.responses.items import Item, WireItem, conversation, left_out, references, regular_items
from millstream.surfaces.responses.options import ResponsesOptions, echo_of
from millstream.surfaces.responses.tools import (
    ToolSet,
    WireChoice,
    WireTool,
    read_choice,
    read_tools,
)
from millstream.surfaces.schemas import schema_format
from millstream.surfaces.service import ServiceBody, service
from millstream.surfaces.template_variables import template_kwargs
from millstream.surfaces.wire import Call, Limits

MAX_REFERENCES = 1024
ECHO_MARGIN = 16
"""Levels around a schema in what a response repeats of its request."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SUMMARIES = ("auto", "concise", "detailed")


class WireTextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    name: str | None = None
    schema: dict[str, Any] | bool | None = None
    strict: bool | None = None
    description: str | None = None


class WireText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: WireTextFormat | None = None
    verbosity: str | None = None


class WireReasoning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    context: Any = None
    mode: Any = None


class ResponsesBody(ServiceBody, frozen=True, kw_only=True):
    """The honoured fields as they are on the wire: null is absent."""

    model: str | None = None
    input: str | list[WireItem] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    tools: list[WireTool] | None = None
    tool_choice: str | WireChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    text: WireText | None = None
    reasoning: WireReasoning | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    truncation: str | None = None
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    stream: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class _Echoed(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that a response repeats as they were sent."""

    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    user: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None


class ParsedRequest(msgspec.Struct, frozen=True):
    """A body that was read. ``references``: ids of stored items that it needs."""

    wire: ResponsesBody
    echoed: _Echoed
    tools: ToolSet

    @property
    def previous_response_id(self) -> str | None:
        """The stored answer that this one continues."""
        return self.wire.previous_response_id or None

    @property
    def references(self) -> list[str]:
        """Ids of the stored items that the input refers to."""
        return references(self.wire.input)


def parse(body: bytes, limits: Limits = Limits()) -> ParsedRequest:  # noqa: B008  (immutable)
    """Read a body. Raises `ApiError` (400) with the path of the field at fault."""
    wire = decode_body(body, ResponsesBody, RESPONSES_FIELDS)
    require_model(wire.model)
    if wire.input is None and not wire.previous_response_id:
        raise missing("input")
    if wire.input == [] and not wire.previous_response_id:
        raise invalid("input must not be empty.", param="input")
    if len(references(wire.input)) > MAX_REFERENCES:
        raise invalid(f"input: at most {MAX_REFERENCES} item references are allowed.", param="input")
    tools = read_tools(wire.tools, limits)  # first, as it says more exactly what is nested too deeply
    return ParsedRequest(wire, _echoed(body, limits), tools)


def build(
    parsed: ParsedRequest,
    limits: Limits = Limits(),  # noqa: B008  (immutable)
    *,
    history: Sequence[Item] = (),
    stored: Mapping[str, Item] | None = None,
) -> Call:
    """The call. ``history``: regular items of the answers that this one continues, oldest first; ``stored``: the items
    that the input refers to, by id.

    Raises:
        ApiError: 400 with the path of the field at fault.
    """
    wire, tools = parsed.wire, parsed.tools
    given = len(wire.input) if isinstance(wire.input, list) else 1
    check_count("input", given + len(history), limits.messages)
    items = regular_items(wire.input, stored or {})
    messages = [Message("system", wire.instructions)] if wire.instructions else []
    messages += conversation([*history, *items], tools)
    if not messages:
        raise invalid("The input holds nothing that could be answered.", param="input")
    logprobs = _logprobs(wire, limits)
    effort = wire.reasoning.effort if wire.reasoning else None
    request = ChatRequest(
        model=require_model(wire.model),
        messages=tuple(messages),
        tools=tools.tools,
        tool_choice=read_choice(wire.tool_choice, tools),
        parallel_tool_calls=wire.parallel_tool_calls is not False,
        response_format=_response_format(wire.text, limits),
        reasoning_effort=one_of("reasoning.effort", effort, EFFORTS),
        template_kwargs=template_kwargs(wire.chat_template_kwargs, effort, limits),
        sampling=sampling(
            SharedBody(**{name: getattr(wire, name) for name in SAMPLED}),
            limits,
            max_tokens=wire.max_output_tokens,
            max_name="max_output_tokens",
        ),
        output=Output(logprobs=logprobs),
        service=service(wire),
    )
    return Call(request, _options(parsed, request, items), _warnings(parsed), tools.paths)


def _echoed(body: bytes, limits: Limits) -> _Echoed:
    """What is repeated must be possible to write, so its depth is bounded."""
    echoed = read_json(body, _Echoed)
    for name in echoed.__struct_fields__:
        check_depth(name, getattr(echoed, name), limits.schema_depth + ECHO_MARGIN)
    return echoed


def _options(parsed: ParsedRequest, request: ChatRequest, items: list[Item]) -> ResponsesOptions:
    wire = parsed.wire
    summary = None
    if wire.reasoning is not None:
        summary = wire.reasoning.summary or wire.reasoning.generate_summary
    one_of("reasoning.summary", summary, SUMMARIES)
    if wire.max_tool_calls is not None and wire.max_tool_calls < 1:
        raise invalid("max_tool_calls must be at least 1.", param="max_tool_calls")
    one_of("service_tier", wire.service_tier, TIERS)
    truncation = one_of("truncation", wire.truncation, ("auto", "disabled"))
    if wire.text is not None:
        one_of("text.verbosity", wire.text.verbosity, ("low", "medium", "high"))
    return ResponsesOptions(
        model=request.model,
        stream=bool(wire.stream),
        usage=True,
        logprobs=request.output.logprobs is not None,
        echo=_echo(parsed, request, summary),
        names=parsed.tools.names,
        summary=summary is not None,
        sealed="reasoning.encrypted_content" in (wire.include or ()),
        store=wire.store is not False,
        previous=parsed.previous_response_id,
        input_items=tuple(items),
        truncate=truncation == "auto",
    )


def _warnings(parsed: ParsedRequest) -> tuple[str, ...]:
    """What was left out that changes the answer, one line each."""
    warnings = []
    if parsed.tools.ignored:
        warnings.append(f"hosted tools are not run here and were left out: {', '.join(parsed.tools.ignored)}")
    if dropped := left_out(parsed.wire.input):
        warnings.append(f"items of hosted tools were left out: {', '.join(dropped)}")
    return tuple(warnings)


def _echo(parsed: ParsedRequest, request: ChatRequest, summary: str | None) -> dict[str, Any]:
    wire, echoed = parsed.wire, parsed.echoed
    form: Any = {"type": "text"}
    if wire.text is not None and wire.text.format is not None:
        form = {name: value for name, value in msgspec.to_builtins(wire.text.format).items() if value is not None}
    return echo_of(
        {
            "instructions": wire.instructions,
            "metadata": None if wire.metadata is None else check_metadata(wire.metadata),
            "parallel_tool_calls": request.parallel_tool_calls,
            "temperature": request.sampling.temperature,
            "tool_choice": echoed.tool_choice,
            "tools": [_echoed_tool(tool) for tool in echoed.tools or ()],
            "top_p": request.sampling.top_p,
            "max_output_tokens": wire.max_output_tokens,
            "max_tool_calls": wire.max_tool_calls,
            "previous_response_id": parsed.previous_response_id,
            "reasoning": {"effort": request.reasoning_effort, "summary": summary},
            "text": {"format": form, **_verbosity(wire.text)},
            "top_logprobs": request.output.logprobs,
            "truncation": wire.truncation,
            "prompt_cache_key": echoed.prompt_cache_key,
            "safety_identifier": echoed.safety_identifier,
            "user": echoed.user,
        }
    )


def _echoed_tool(tool: dict[str, Any]) -> dict[str, Any]:
    # The SDK's type has these keys for every function.
    return {"parameters": None, "strict": None, **tool} if tool.get("type") == "function" else tool


def _verbosity(text: WireText | None) -> dict[str, str]:
    return {"verbosity": text.verbosity} if text is not None and text.verbosity is not None else {}


def _logprobs(wire: ResponsesBody, limits: Limits) -> int | None:
    for position, name in enumerate(wire.include or ()):
        if name not in INCLUDABLE:
            raise invalid(f"include[{position}]: {name[:64]!r} is not known.", param=f"include[{position}]")
    top = wire.top_logprobs or 0
    if not 0 <= top <= limits.top_logprobs:
        raise invalid(f"top_logprobs must be between 0 and {limits.top_logprobs}.", param="top_logprobs")
    return top if top or "message.output_text.logprobs" in (wire.include or ()) else None


def _response_format(text: WireText | None, limits: Limits) -> ResponseFormat:
    form = text.format if text is not None else None
    if form is None or form.type == "text":
        return ResponseFormat()
    if form.type == "json_object":
        return ResponseFormat("json_object")
    if form.type != "json_schema":
        raise invalid(
            f"text.format.type must be text, json_object or json_schema, got {form.type[:64]!r}.",
            param="text.format.type",
        )
    if form.name is None:
        raise missing("text.format.name")
    return schema_format(form.schema, "text.format.schema", limits, name=form.name, strict=form.strict)
