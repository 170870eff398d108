"""OpenAI chat completions: a stream of deltas as `chat.completion.chunk` frames, or folded as one `chat.completion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.ir.deltas import (
    Content,
    Delta,
    Error,
    Finish,
    Reasoning,
    Refusal,
    Start,
    ToolCallArgs,
    ToolCallStart,
)
from millstream.ir.fold import Answer, ChoiceAnswer, UsageCounter
from millstream.surfaces.openai_chat_request import ChatOptions, decode
from millstream.surfaces.openai_common import (
    DONE,
    Envelope,
    chat_logprobs,
    data_frame,
    encode_error,
    error_frame,
    to_json,
    usage_body,
)
from millstream.surfaces.openai_labels import TIER
from millstream.surfaces.sse import comment
from millstream.surfaces.wire import WireOptions

__all__ = ["FIELD_NAMES", "NAME", "decode", "encode_answer", "encode_error", "stream_encoder"]

NAME = "chat_completions"
FIELD_NAMES: Mapping[str, str] = {}
ID_PREFIX = "chatcmpl-"

DATA_PING_SECONDS = 60.0
"""Some clients do not count comments as life: after this silence an empty delta goes out instead."""

_OPEN = b'},"finish_reason":null'
_FRAME_END = b"]}\n\n"
_PLAIN_END = _OPEN + b"}" + _FRAME_END


def stream_encoder(options: WireOptions, *, response_id: str | None = None, created: int | None = None) -> ChatEncoder:
    """The encoder of one stream; ``response_id`` and ``created`` are minted unless given."""
    return ChatEncoder(options, _envelope("chat.completion.chunk", options, response_id, created))


class ChatEncoder:
    """Role chunk, content chunks, one finish per choice, usage if asked for, `[DONE]`."""

    def __init__(self, options: WireOptions, envelope: Envelope) -> None:
        self._options = options
        self._envelope = envelope
        self._usage = UsageCounter(options.choices)
        self._counting = options.usage or options.running_usage
        self._heads = [envelope.open_choices + b'{"index":%d,"delta":{' % index for index in range(options.choices)]
        self._plain = not (self._counting or options.token_ids or options.logprobs)
        self._content_heads = [head + b'"content":' for head in self._heads]

    def start(self) -> bytes:
        return b"".join(self._chunk(index, b'"role":"assistant","content":""') for index in range(len(self._heads)))

    def encode(self, delta: Delta) -> bytes:
        if self._plain and type(delta) is Content:  # nearly all deltas are this one
            text = delta.text
            return self._content_heads[delta.choice] + to_json(text) + _PLAIN_END if text else b""
        if self._counting:
            self._usage.feed(delta)
        match delta:
            case Content(text=text):
                return self._text(delta, b'"content":', text)
            case Reasoning(text=text):
                return self._text(delta, b'"reasoning_content":', text)
            case ToolCallStart():
                call = {"index": delta.index, "id": delta.id, "type": "function"}
                call["function"] = {"name": delta.name, "arguments": ""}
                return self._chunk(delta.choice, b'"tool_calls":' + to_json([call]), self._token_ids(delta))
            case ToolCallArgs():
                part = {"index": delta.index, "function": {"arguments": delta.fragment}}
                return self._chunk(delta.choice, b'"tool_calls":' + to_json([part]), self._token_ids(delta))
            case Refusal():
                return self._chunk(delta.choice, b'"refusal":' + to_json(delta.text))
            case Finish():
                return self._finish(delta)
            case Error():
                return error_frame(delta)
            case Start():
                return b""

    def end(self) -> bytes:
        return DONE

    def ping(self, silent_seconds: float) -> bytes:
        if silent_seconds < DATA_PING_SECONDS:
            return comment("keep-alive")
        return self._chunk(0, b'"content":""')

    def _text(self, delta: Content | Reasoning, key: bytes, text: str) -> bytes:
        extra = self._extra(delta)
        if not text and not extra:
            return b""
        return self._chunk(delta.choice, key + to_json(text), extra)

    def _finish(self, delta: Finish) -> bytes:
        head = self._heads[delta.choice] + b'},"finish_reason":"' + delta.reason.encode() + b'"'
        frame = head + self._extra(delta) + b"}" + self._tail()
        if self._options.usage and self._usage.open_choices == 0:
            frame += data_frame({**self._envelope.head, "choices": [], "usage": usage_body(self._usage.total)})
        return frame

    def _chunk(self, choice: int, delta: bytes, extra: bytes = b"") -> bytes:
        return self._heads[choice] + delta + _OPEN + extra + b"}" + self._tail()

    def _tail(self) -> bytes:
        if not self._options.running_usage:
            return _FRAME_END
        return b'],"usage":' + to_json(usage_body(self._usage.total)) + b"}\n\n"

    def _extra(self, delta: Content | Reasoning | Finish) -> bytes:
        """Members of the choice beside its delta."""
        extra = self._token_ids(delta)
        if delta.logprobs and self._options.logprobs:
            extra += b',"logprobs":' + to_json(chat_logprobs(delta.logprobs))
        return extra

    def _token_ids(self, delta: Content | Reasoning | ToolCallStart | ToolCallArgs | Finish) -> bytes:
        if delta.token_ids and self._options.token_ids:
            return b',"token_ids":' + to_json(delta.token_ids)
        return b""


def encode_answer(
    answer: Answer, options: WireOptions, *, response_id: str | None = None, created: int | None = None
) -> bytes:
    """The body of a folded answer."""
    return to_json(answer_body(answer, options, response_id=response_id, created=created))


def answer_body(
    answer: Answer, options: WireOptions, *, response_id: str | None = None, created: int | None = None
) -> dict[str, Any]:
    """The object of a folded answer."""
    head = _envelope("chat.completion", options, response_id, created).head
    choices = [_choice(choice, options) for choice in answer.choices]
    return {**head, "choices": choices, "usage": usage_body(answer.usage)}


def _envelope(kind: str, options: WireOptions, response_id: str | None, created: int | None) -> Envelope:
    # As OpenAI does: told where the client named one.
    told = {"service_tier": TIER} if isinstance(options, ChatOptions) and options.tier else {}
    return Envelope(ID_PREFIX, kind, options.model, response_id, created, **told)


def _choice(choice: ChoiceAnswer, options: WireOptions) -> dict[str, Any]:
    calls = choice.tool_calls
    # As OpenAI does: null where there are calls and no text.
    message: dict[str, Any] = {"role": "assistant", "content": choice.text if choice.text or not calls else None}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    message["refusal"] = choice.refusal
    body: dict[str, Any] = {"index": choice.index, "message": message, "finish_reason": choice.finish_reason}
    body["logprobs"] = chat_logprobs(choice.logprobs) if options.logprobs else None
    if options.token_ids:
        body["token_ids"] = choice.token_ids
    return body
