"""What a request asks for, as an operator may see it: numbers and names, never its text."""

from __future__ import annotations

from typing import Any

import msgspec

from millstream.ir.request import ChatRequest, CompletionRequest, EmbeddingRequest, Sampling, Service

Value = str | int | float | bool

AnyRequest = ChatRequest | CompletionRequest | EmbeddingRequest

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Sampling)} | {
    field.name: field.default for field in msgspec.structs.fields(Service)
}
_COUNTED = ("stop", "stop_token_ids", "logit_bias")
"""Told by how many there are: they are the client's text, or long."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request when it comes, and stays.

    ``id``: that of the HTTP request, made unique among those that are remembered. ``handle``: by what the provider
    knows it. ``tenant``: whose it is; ``key``: what that is called. ``parent``: the W3C ``traceparent`` that it came
    with. ``asked``: its parameters. ``prompt``: its text, if that is to be logged.
    """

    id: str
    handle: str
    surface: str
    model: str
    tenant: str = ""
    key: str = ""
    streamed: bool = False
    choices: int = 1
    parent: str | None = None
    asked: dict[str, Value] = {}
    prompt: str | None = None


def choices_of(request: AnyRequest) -> int:
    """Choices of its answer; of embeddings, the vectors."""
    return len(request.inputs) if isinstance(request, EmbeddingRequest) else request.choices


def asked_of(request: AnyRequest) -> dict[str, Value]:
    """The parameters that are not at their default."""
    asked: dict[str, Value] = {}
    if isinstance(request, ChatRequest):
        asked["messages"] = len(request.messages)
        if request.tools:
            asked["tools"] = len(request.tools)
            asked["tool_choice"] = request.tool_choice.mode
        if request.response_format.kind != "text":
            asked["response_format"] = request.response_format.kind
        for name in ("reasoning_effort", "reasoning_budget"):
            if (value := getattr(request, name)) is not None:
                asked[name] = value
    elif isinstance(request, CompletionRequest):
        asked["prompts"] = len(request.prompts)
        if request.best_of is not None:
            asked["best_of"] = request.best_of
        if request.echo:
            asked["echo"] = True
    else:
        asked["inputs"] = len(request.inputs)
        if request.dimensions is not None:
            asked["dimensions"] = request.dimensions
    if not isinstance(request, EmbeddingRequest):
        if request.n != 1:
            asked["n"] = request.n
        if request.output.logprobs is not None:
            asked["logprobs"] = request.output.logprobs
        asked |= _changed(request.sampling)
    return asked | _changed(request.service)


def _changed(part: Sampling | Service) -> dict[str, Value]:
    changed: dict[str, Value] = {}
    for name in part.__struct_fields__:
        value: Any = getattr(part, name)
        if (name != "handle" and value and value != _DEFAULTS[name]) or value == 0 != _DEFAULTS[name]:
            changed[name] = len(value) if name in _COUNTED else value
    return changed


def prompt_of(request: AnyRequest) -> str:
    """The text of a request, as JSON."""
    if isinstance(request, ChatRequest):
        return msgspec.json.encode(request.messages).decode()
    texts = request.prompts if isinstance(request, CompletionRequest) else request.inputs
    return msgspec.json.encode(texts).decode()
