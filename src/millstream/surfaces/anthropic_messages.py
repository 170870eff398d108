"""Anthropic Messages: a stream of deltas as named events, or folded as one `message`."""

from __future__ import annotations

import secrets
from collections import deque
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
    Usage,
)
from millstream.ir.fold import Answer, Block, Text, Thinking
from millstream.surfaces.anthropic_common import (
    encode_error,
    error_event,
    event,
    signature,
    stop_fields,
    usage_body,
)
from millstream.surfaces.anthropic_request import decode, decode_count
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.partial_json import as_object, is_object
from millstream.surfaces.wire import WireOptions

__all__ = ["FIELD_NAMES", "NAME", "decode", "decode_count", "encode_answer", "encode_error", "stream_encoder"]

NAME = "messages"
FIELD_NAMES: Mapping[str, str] = {"response_format": "output_config.format", "stop": "stop_sequences"}

_PING = event("ping", {})
_STOP = event("message_stop", {})
_LATE = Error("The arguments of a tool call went on after the call was complete.")


def stream_encoder(
    options: WireOptions, *, response_id: str | None = None, created: int | None = None
) -> MessagesEncoder:
    """The encoder of one stream; ``response_id`` is minted unless given. The format tells no creation time."""
    return MessagesEncoder(options, response_id or _new_id())


class MessagesEncoder:
    """`message_start` as soon as the prompt's cost is known, blocks one after the other, `message_delta` with the
    reason and the usage, `message_stop`; or `error`, and nothing after it."""

    def __init__(self, options: WireOptions, response_id: str) -> None:
        self._head = _message(response_id, options.model)
        self._blocks = _Blocks(hide_reasoning=options.hide_reasoning)
        self._started = False
        self._failed = False
        self._refused = False

    def start(self) -> bytes:
        return b""

    def encode(self, delta: Delta) -> bytes:
        if self._failed:
            return b""
        match delta:
            case Start():
                return self._open(Usage(delta.prompt_tokens, 0, delta.cached_tokens))
            case Error():
                return self._fail(delta)
            case Refusal():
                self._refused = True
                return b""
            case Finish():
                return self._finish(delta)
            case _:
                try:
                    return self._blocks.feed(delta) if self._started else self._open(Usage()) + self._blocks.feed(delta)
                except _LateArguments:
                    return self._fail(_LATE)

    def end(self) -> bytes:
        return b""

    def ping(self, silent_seconds: float) -> bytes:
        return _PING

    def _open(self, usage: Usage) -> bytes:
        if self._started:
            return b""
        self._started = True
        return event("message_start", {"message": {**self._head, "usage": usage_body(usage)}}) + _PING

    def _finish(self, finish: Finish) -> bytes:
        usage = finish.usage
        try:
            frames = self._open(Usage(usage.prompt_tokens, 0, usage.cached_tokens)) + self._blocks.finish()
        except _LateArguments:
            return self._fail(_LATE)
        delta = stop_fields(finish, refused=self._refused, has_calls=self._blocks.has_calls)
        return frames + event("message_delta", {"delta": delta, "usage": usage_body(usage)}) + _STOP

    def _fail(self, error: Error) -> bytes:
        # The open block stays open and no `message_stop` follows: nothing may look complete.
        self._failed = True
        return error_event(error)


class _LateArguments(Exception):
    """Arguments of a call whose block was closed, as they were complete."""


class _Blocks:
    """Content blocks: one open at a time, in order of appearance.

    A call's block is closed once its arguments are complete. If something else comes before that (the calls of some
    servers arrive interleaved), it waits: the format cannot go back to a closed block.
    """

    def __init__(self, *, hide_reasoning: bool) -> None:
        self.has_calls = False
        self._hide_reasoning = hide_reasoning
        self._index = -1
        self._open: type[Content] | type[Reasoning] | int | None = None
        self._pieces: list[str] = []
        self._head = b""
        self._waiting: deque[Content | Reasoning | ToolCallStart | ToolCallArgs] = deque()

    def feed(self, delta: Content | Reasoning | ToolCallStart | ToolCallArgs) -> bytes:
        if isinstance(delta, ToolCallArgs):
            if not delta.fragment:
                return b""
            if delta.index == self._open:
                frames = self._write(delta.fragment)
                if self._waiting and "}" in delta.fragment and self._complete():
                    frames += self._go_on()
                return frames
        elif not isinstance(delta, ToolCallStart) and not delta.text:
            return b""
        if isinstance(self._open, int) and (self._waiting or not self._complete()):
            self._waiting.append(delta)
            return b""
        if isinstance(delta, ToolCallStart):
            return self._open_call(delta)
        if isinstance(delta, ToolCallArgs):
            if delta.fragment.isspace():
                return b""
            raise _LateArguments
        return self._text(delta)

    def finish(self) -> bytes:
        """Everything that waits, and the end of the last block."""
        arguments: dict[int, list[str]] = {}
        others: list[Content | Reasoning | ToolCallStart] = []
        for delta in self._waiting:
            if isinstance(delta, ToolCallArgs):
                arguments.setdefault(delta.index, []).append(delta.fragment)
            else:
                others.append(delta)
        self._waiting.clear()
        frames = [self._close()]
        for delta in others:
            if isinstance(delta, ToolCallStart):
                frames.append(self._open_call(delta))
                fragments = arguments.pop(delta.index, None)
                frames.append(self._write("".join(fragments)) if fragments else b"")
            else:
                frames.append(self._text(delta))
        if any(not "".join(fragments).isspace() for fragments in arguments.values()):
            raise _LateArguments
        return b"".join(frames) + self._close()

    def _go_on(self) -> bytes:
        """Close the block that others wait for, and write those up to the next incomplete call."""
        frames = self._close()
        waiting, self._waiting = self._waiting, deque()
        for delta in waiting:
            frames += self.feed(delta)
        return frames

    def _text(self, delta: Content | Reasoning) -> bytes:
        kind = type(delta)
        frames = b"" if self._open is kind else self._open_text(kind)
        return frames + self._write(delta.text)

    def _complete(self) -> bool:
        return is_object("".join(self._pieces))

    def _open_call(self, call: ToolCallStart) -> bytes:
        self.has_calls = True
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        return self._open_block(call.index, block, b"input_json_delta", b"partial_json")

    def _open_text(self, kind: type[Content] | type[Reasoning]) -> bytes:
        if kind is Content:
            return self._open_block(Content, {"type": "text", "text": ""}, b"text_delta", b"text")
        block = {"type": "thinking", "thinking": "", "signature": ""}
        return self._open_block(Reasoning, block, b"thinking_delta", b"thinking")

    def _open_block(
        self, kind: type[Content] | type[Reasoning] | int, block: dict[str, Any], delta: bytes, key: bytes
    ) -> bytes:
        frames = self._close()
        self._open = kind
        self._index += 1
        # The constant part as text, so that a delta is a join and not a serialisation.
        self._head = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%s","%s":'
            % (self._index, delta, key)
        )
        return frames + event("content_block_start", {"index": self._index, "content_block": block})

    def _write(self, text: str) -> bytes:
        if self._open is not Content:
            self._pieces.append(text)
            if self._open is Reasoning and self._hide_reasoning:
                return b""
        return self._head + to_json(text) + b"}}\n\n"

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        frames = b""
        if self._open is Reasoning:
            signed = signature("".join(self._pieces), carried=self._hide_reasoning)
            delta = {"type": "signature_delta", "signature": signed}
            frames = event("content_block_delta", {"index": self._index, "delta": delta})
        self._open = None
        self._pieces.clear()
        return frames + event("content_block_stop", {"index": self._index})


def encode_answer(
    answer: Answer, options: WireOptions, *, response_id: str | None = None, created: int | None = None
) -> bytes:
    """The body of a folded answer."""
    choice = answer.choices[0]
    assert choice.finish_reason is not None
    finish = Finish(choice.finish_reason, answer.usage, stop_sequence=choice.stop_sequence)
    stop = stop_fields(finish, refused=choice.refusal is not None, has_calls=bool(choice.tool_calls))
    content = [_block(block, options) for block in choice.blocks]
    message = _message(response_id or _new_id(), options.model)
    return to_json({**message, "content": content, **stop, "usage": usage_body(answer.usage)})


def _block(block: Block, options: WireOptions) -> dict[str, Any]:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Thinking(text=text):
            hidden = options.hide_reasoning
            signed = signature(text, carried=hidden)
            return {"type": "thinking", "thinking": "" if hidden else text, "signature": signed}
        case _:
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": as_object(block.arguments)}


def _message(identity: str, model: str) -> dict[str, Any]:
    head: dict[str, Any] = {"id": identity, "type": "message", "role": "assistant", "model": model, "content": []}
    return {**head, "stop_reason": None, "stop_sequence": None}


def _new_id() -> str:
    return "msg_" + secrets.token_hex(12)
