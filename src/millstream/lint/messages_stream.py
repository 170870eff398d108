"""Rules of Anthropic's streams as a state machine over the frames of one response.

The rules: the event's name is the type in its data; `message_start` comes first, once, with an empty message; blocks
are numbered from 0, one is open at a time and opens with all its members; a delta's type fits the block that is open;
`message_delta` has a reason, the stop sequence that goes with it, and the usage; `message_stop` comes once, last; an
error ends the stream without it; `ping` may come at any moment before the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from millstream.lint.sse import Finding, Frame, parse

STOP_REASONS = (
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
)
ERROR_TYPES = (
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "timeout_error",
    "api_error",
    "overloaded_error",
)
_BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def lint_messages(raw: bytes, *, whole_arguments: bool = True) -> list[Finding]:
    """Findings in the body of a streamed message; empty if it is legal.

    ``whole_arguments``: the arguments of every call must be a JSON object, unless `max_tokens` cut them.
    """
    frames, findings = parse(raw)
    lint = MessagesLint(whole_arguments=whole_arguments)
    for frame in frames:
        if frame.data is not None or frame.event is not None:
            lint.feed(frame)
    return findings + lint.finish()


class MessagesLint:
    """`feed` takes each frame that is more than a comment, `finish` gives the findings."""

    def __init__(self, *, whole_arguments: bool = True) -> None:
        self._whole_arguments = whole_arguments
        self._findings: list[Finding] = []
        self._frame = -1
        self._started = self._reasoned = self._stopped = self._failed = False
        self._blocks = 0
        self._open: str | None = None
        self._signed = True
        self._arguments: list[list[str]] = []
        self._call_ids: list[str] = []
        self._input: Any = None
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "error": self._error,
            "ping": lambda event: None,
        }

    def feed(self, frame: Frame) -> None:
        self._frame += 1
        try:
            event = msgspec.json.decode(frame.data or "")
        except msgspec.DecodeError as error:
            self._report("json", str(error))
            return
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            self._report("json", "an event must be an object with a type")
            return
        kind = event["type"]
        self._check(frame.event == kind, "event-name", f"event {frame.event!r} has data of type {kind!r}")
        if self._stopped:
            self._report("stop-last", f"{kind} after message_stop")
        elif self._failed:
            self._report("error-ends", f"{kind} after the error")
        elif kind not in self._handlers:
            self._report("event", f"no such event: {kind!r}")
        elif kind not in ("message_start", "ping", "error") and not self._started:
            self._report("start-first", f"{kind} before message_start")
        else:
            self._handlers[kind](event)

    def finish(self) -> list[Finding]:
        self._frame = -1
        if not self._failed:
            self._check(self._stopped, "stop-last", "the stream has no message_stop")
        return self._findings

    def _message_start(self, event: dict[str, Any]) -> None:
        self._check(not self._started, "start-first", "a second message_start")
        self._started = True
        message: Any = event.get("message")
        if not self._check(isinstance(message, dict), "message", "message_start needs a message"):
            return
        fixed: dict[str, Any] = {
            "type": "message",
            "role": "assistant",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        for name, value in fixed.items():
            legal = name in message and message[name] == value
            self._check(legal, "message", f"{name} must be {value!r} in message_start")
        for name in ("id", "model"):
            self._check(isinstance(message.get(name), str), "message", f"{name} must be text")
        self._usage(message.get("usage"))

    def _block_start(self, event: dict[str, Any]) -> None:
        self._check(self._open is None, "one-block", "a block starts while another is open")
        self._check(not self._reasoned, "block-order", "a block after message_delta")
        self._check(
            event.get("index") == self._blocks, "index", f"block {event.get('index')!r} is number {self._blocks}"
        )
        self._blocks += 1
        block = event.get("content_block")
        kind = block.get("type") if isinstance(block, dict) else None
        self._open = kind if isinstance(kind, str) else ""
        self._signed = False
        if not isinstance(block, dict) or self._open not in _BLOCKS:
            self._report("block-shape", f"not a block: {block!r}")
            return
        for name, value in _BLOCKS[self._open].items():
            legal = name in block and block[name] == value
            self._check(legal, "block-shape", f"a {self._open} block must start with {name} {value!r}")
        if self._open == "tool_use":
            named = all(isinstance(block.get(name), str) and block[name] for name in ("id", "name"))
            self._check(named, "block-shape", "a tool_use block needs an id and a name")
            self._check(block.get("id") not in self._call_ids, "block-shape", "two calls have the same id")
            self._call_ids.append(str(block.get("id")))
            self._arguments.append([])

    def _block_delta(self, event: dict[str, Any]) -> None:
        self._at_open_block(event)
        delta = event.get("delta")
        kind = delta.get("type") if isinstance(delta, dict) else None
        if not isinstance(delta, dict) or not isinstance(kind, str) or kind not in _DELTAS:
            self._report("delta", f"not a delta: {delta!r}")
            return
        block, key = _DELTAS[kind]
        self._check(self._open in (None, block), "delta-type", f"{kind} in a block of type {self._open!r}")
        if not self._check(isinstance(delta.get(key), str), "delta", f"{key} must be text"):
            return
        if kind == "signature_delta":
            self._check(not self._signed and bool(delta[key]), "signature", "one signature, not empty")
            self._signed = True
        elif kind == "thinking_delta":
            self._check(not self._signed, "signature", "thinking after its signature")
        elif kind == "input_json_delta" and self._arguments:
            self._arguments[-1].append(delta[key])

    def _block_stop(self, event: dict[str, Any]) -> None:
        self._at_open_block(event)
        if self._open == "thinking":
            self._check(self._signed, "signature", "a thinking block without a signature")
        self._open = None

    def _at_open_block(self, event: dict[str, Any]) -> None:
        index = event.get("index")
        if self._open is None:
            self._report("one-block", f"block {index!r} is not open")
        else:
            self._check(index == self._blocks - 1, "index", f"block {index!r}, but block {self._blocks - 1} is open")

    def _message_delta(self, event: dict[str, Any]) -> None:
        self._check(self._open is None, "one-block", "message_delta while a block is open")
        self._check(not self._reasoned, "reason", "a second message_delta")
        self._reasoned = True
        delta: Any = event.get("delta")
        if self._check(isinstance(delta, dict), "reason", "message_delta needs a delta"):
            reason = delta.get("stop_reason")
            self._check(reason in STOP_REASONS, "reason", f"stop_reason {reason!r}")
            self._check("stop_sequence" in delta, "reason", "stop_sequence is missing")
            told = isinstance(delta.get("stop_sequence"), str)
            self._check(told == (reason == "stop_sequence"), "reason", "stop_sequence does not go with the reason")
            self._check(reason != "tool_use" or bool(self._call_ids), "reason", "tool_use without a call")
            if self._whole_arguments and reason != "max_tokens":
                self._whole()
        self._usage(event.get("usage"))

    def _whole(self) -> None:
        for call, fragments in zip(self._call_ids, self._arguments, strict=True):
            text = "".join(fragments) or "{}"
            try:
                legal = isinstance(msgspec.json.decode(text), dict)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
                legal = False
            self._check(legal, "arguments", f"the arguments of call {call} are no JSON object: {text[:80]!r}")

    def _message_stop(self, event: dict[str, Any]) -> None:
        self._check(self._reasoned, "reason", "message_stop without a message_delta")
        self._stopped = True

    def _error(self, event: dict[str, Any]) -> None:
        self._failed = True
        self._check(not self._reasoned, "error-ends", "an error after the reason was told")
        error = event.get("error")
        shape = isinstance(error, dict) and isinstance(error.get("message"), str) and error.get("type") in ERROR_TYPES
        self._check(shape, "error", f"not an error: {error!r}")

    def _usage(self, usage: Any) -> None:
        if not self._check(isinstance(usage, dict), "usage", "usage is missing"):
            return
        for name in _COUNTS:
            count = usage.get(name)
            self._check(type(count) is int and count >= 0, "usage", f"{name}: {count!r}")
        given = [usage.get(name) for name in _COUNTS if name != "output_tokens"]
        if self._input is None or not any(self._input):
            self._input = given
        self._check(given == self._input, "usage", "the input's counts changed")

    def _report(self, rule: str, message: str) -> None:
        self._findings.append(Finding(rule, self._frame, message))

    def _check(self, holds: bool, rule: str, message: str) -> bool:
        if not holds:
            self._report(rule, message)
        return holds
