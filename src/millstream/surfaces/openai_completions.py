"""OpenAI completions: raw text or token ids continued, without a chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.ir.deltas import Content, Delta, Error, Finish, Reasoning
from millstream.ir.errors import invalid
from millstream.ir.fold import Answer, ChoiceAnswer, Text, Thinking, UsageCounter
from millstream.ir.request import CompletionRequest, Output
from millstream.surfaces.openai_common import (
    DONE,
    Envelope,
    LegacyLogprobs,
    data_frame,
    encode_error,
    error_frame,
    to_json,
    usage_body,
)
from millstream.surfaces.openai_fields import COMPLETION_FIELDS
from millstream.surfaces.openai_params import (
    MAX_INT32,
    SharedBody,
    choice_count,
    decode_body,
    require_model,
    sampling,
    stream_flags,
)
from millstream.surfaces.openai_prompts import read_prompts
from millstream.surfaces.service import service
from millstream.surfaces.sse import comment
from millstream.surfaces.wire import Call, Limits, WireOptions

__all__ = ["FIELD_NAMES", "NAME", "decode", "encode_answer", "encode_error", "stream_encoder"]

NAME = "completions"
FIELD_NAMES: Mapping[str, str] = {}

DEFAULT_MAX_TOKENS = 16


class CompletionBody(SharedBody, frozen=True, kw_only=True):
    prompt: str | list[Any] | None = None
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


def decode(body: bytes, limits: Limits = Limits()) -> Call:  # noqa: B008  (immutable)
    """Read a request.

    Raises:
        ApiError: 400 with the path of the field at fault.
    """
    wire = decode_body(body, CompletionBody, COMPLETION_FIELDS)
    stream, usage, running = stream_flags(wire)
    if wire.logprobs is not None and not 0 <= wire.logprobs <= limits.top_logprobs:
        raise invalid(f"logprobs must be between 0 and {limits.top_logprobs}.", param="logprobs")
    ids = bool(wire.return_token_ids)
    prompts = read_prompts("prompt", wire.prompt, may_be_empty=True)
    n = choice_count(wire.n, limits)
    request = CompletionRequest(
        model=require_model(wire.model),
        prompts=prompts,
        echo=bool(wire.echo),
        best_of=_best_of(wire, n, limits, stream=stream),
        suffix=wire.suffix or None,
        sampling=sampling(wire, limits, max_tokens=_max_tokens(wire), least_tokens=0 if wire.echo else 1),
        # Running usage is counted from the ids of each delta.
        output=Output(logprobs=wire.logprobs, token_ids=ids or running),
        n=n,
        service=service(wire),
    )
    _check_size(request, limits)
    options = WireOptions(
        model=request.model,
        stream=stream,
        choices=request.choices,
        usage=usage,
        running_usage=running,
        token_ids=ids,
        logprobs=wire.logprobs is not None,
    )
    return Call(request, options)


def _max_tokens(wire: CompletionBody) -> int:
    if wire.max_tokens is not None:
        return wire.max_tokens
    return max(DEFAULT_MAX_TOKENS, min(wire.min_tokens or 0, MAX_INT32))  # its own range is checked later


def _best_of(wire: CompletionBody, n: int, limits: Limits, *, stream: bool) -> int | None:
    if wire.best_of is None or wire.best_of == n == 1:
        return None
    if not n <= wire.best_of <= limits.choices:
        raise invalid(f"best_of must be between n ({n}) and {limits.choices}, got {wire.best_of}.", param="best_of")
    if stream and wire.best_of > n:
        raise invalid("best_of above n cannot be streamed: the best are known only at the end.", param="best_of")
    return wire.best_of if wire.best_of > n else None


def _check_size(request: CompletionRequest, limits: Limits) -> None:
    drawn = (request.best_of or request.n) * len(request.prompts)
    if drawn > limits.sequences:
        raise invalid(
            f"{len(request.prompts)} prompts times {request.best_of or request.n} choices are {drawn} answers, but one "
            f"request may ask for {limits.sequences}. Send more requests with fewer prompts.",
            param="prompt",
        )


def stream_encoder(
    options: WireOptions, *, response_id: str | None = None, created: int | None = None
) -> CompletionEncoder:
    """The encoder of one stream; ``response_id`` and ``created`` are minted unless given."""
    return CompletionEncoder(options, Envelope("cmpl-", "text_completion", options.model, response_id, created))


class CompletionEncoder:
    """Text chunks, one finish per choice, usage if asked for, `[DONE]`.

    The format knows nothing but text: reasoning is text in it, and tool calls, which raw completions never make, are
    left out.
    """

    def __init__(self, options: WireOptions, envelope: Envelope) -> None:
        self._options = options
        self._envelope = envelope
        self._usage = UsageCounter(options.choices)
        self._counting = options.usage or options.running_usage
        self._logprobs = [LegacyLogprobs() for _ in range(options.choices)]
        self._heads = [envelope.open_choices + b'{"index":%d,"text":' % index for index in range(options.choices)]

    def start(self) -> bytes:
        return b""

    def encode(self, delta: Delta) -> bytes:
        if self._counting:
            self._usage.feed(delta)
        match delta:
            case Content(text=text) | Reasoning(text=text):
                extra = self._extra(delta)
                return self._chunk(delta.choice, text, b"null", extra) if text or extra else b""
            case Finish():
                return self._finish(delta)
            case Error():
                return error_frame(delta)
            case _:
                return b""

    def end(self) -> bytes:
        return DONE

    def ping(self, silent_seconds: float) -> bytes:
        return comment("keep-alive")

    def _finish(self, delta: Finish) -> bytes:
        reason = to_json(finish_reason(delta.reason))
        frame = self._chunk(delta.choice, "", reason, self._extra(delta))
        if self._options.usage and self._usage.open_choices == 0:
            frame += data_frame({**self._envelope.head, "choices": [], "usage": usage_body(self._usage.total)})
        return frame

    def _chunk(self, choice: int, text: str, finish: bytes, extra: bytes) -> bytes:
        body = self._heads[choice] + to_json(text) + b',"finish_reason":' + finish + extra
        if not self._options.running_usage:
            return body + b"}]}\n\n"
        return body + b'}],"usage":' + to_json(usage_body(self._usage.total)) + b"}\n\n"

    def _extra(self, delta: Content | Reasoning | Finish) -> bytes:
        extra = b""
        if delta.token_ids and self._options.token_ids:
            extra = b',"token_ids":' + to_json(delta.token_ids)
        if delta.logprobs and self._options.logprobs:
            extra += b',"logprobs":' + to_json(self._logprobs[delta.choice].body(delta.logprobs))
        return extra


def encode_answer(
    answer: Answer, options: WireOptions, *, response_id: str | None = None, created: int | None = None
) -> bytes:
    """The body of a folded answer."""
    envelope = Envelope("cmpl-", "text_completion", options.model, response_id, created)
    choices = [_choice(choice, options) for choice in answer.choices]
    return to_json({**envelope.head, "choices": choices, "usage": usage_body(answer.usage)})


def _choice(choice: ChoiceAnswer, options: WireOptions) -> dict[str, Any]:
    text = "".join(block.text for block in choice.blocks if isinstance(block, Text | Thinking))
    body: dict[str, Any] = {"index": choice.index, "text": text, "finish_reason": finish_reason(choice.finish_reason)}
    body["logprobs"] = LegacyLogprobs().body(choice.logprobs) if options.logprobs else None
    if options.token_ids:
        body["token_ids"] = choice.token_ids
    return body


def finish_reason(reason: str | None) -> str | None:
    """The reason in this format's words, which know no tool calls."""
    return "stop" if reason == "tool_calls" else reason
