"""Rules of OpenAI's streams, chat and completions, as state machines over the frames of one response.

The rules: one envelope for all chunks; a role chunk opens each choice (chat); nothing of a choice after its finish; one
finish per choice; calls numbered in order, named once; usage only if asked for, once, after the last finish; an error
ends the stream without a finish; `[DONE]` once, last; nothing is null but an open ``finish_reason``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from millstream.lint.sse import Finding, parse

CHAT_REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")
COMPLETION_REASONS = ("stop", "length", "content_filter")
_TEXT_KEYS = ("content", "reasoning_content", "reasoning", "refusal")


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What the request asked for. ``usage`` None: not known, either is legal."""

    choices: int = 1
    usage: bool | None = None
    running_usage: bool = False


def lint_chat(raw: bytes, expect: Expectation | None = None) -> list[Finding]:
    """Findings in the body of a streamed chat completion; empty if it is legal."""
    return _lint(raw, ChatLint(expect or Expectation()))


def lint_completion(raw: bytes, expect: Expectation | None = None) -> list[Finding]:
    """Findings in the body of a streamed completion; empty if it is legal."""
    return _lint(raw, CompletionLint(expect or Expectation()))


def _lint(raw: bytes, lint: StreamLint) -> list[Finding]:
    frames, findings = parse(raw)
    for frame in frames:
        if frame.data is not None:
            lint.feed(frame.data)
    return findings + lint.finish()


class _Choice:
    def __init__(self) -> None:
        self.chunks = 0
        self.finished = False
        self.calls: list[str] = []
        self.refusals = 0


class StreamLint:
    """What both formats share. `feed` takes the data of each frame, `finish` gives the findings."""

    kind = ""
    reasons: tuple[str, ...] = ()

    def __init__(self, expect: Expectation) -> None:
        self._expect = expect
        self._findings: list[Finding] = []
        self._frame = -1
        self._envelope: dict[str, Any] | None = None
        self._choices = {index: _Choice() for index in range(expect.choices)}
        self._usages = 0
        self._running = -1
        self._errors = 0
        self._done = 0

    def feed(self, data: str) -> None:
        self._frame += 1
        if self._done:
            self.report("done-last", "a frame after [DONE]")
        if data == "[DONE]":
            self._done += 1
            return
        try:
            chunk = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            self.report("json", str(error))
            return
        if not isinstance(chunk, dict):
            self.report("json", "a chunk must be an object")
        elif self._errors:
            self.report("error-ends", "a chunk after the error")
        elif "error" in chunk:
            self._error(chunk)
        else:
            self._chunk(chunk)

    def finish(self) -> list[Finding]:
        self._frame = -1
        self.check(self._done == 1, "done-last", f"{self._done} [DONE] frames")
        if not self._errors:
            for index, choice in self._choices.items():
                self.check(choice.finished, "finish", f"choice {index} has no finish_reason")
            if self._expect.usage:
                self.check(self._usages == 1, "usage", "usage was asked for and did not come")
        return self._findings

    def report(self, rule: str, message: str) -> None:
        self._findings.append(Finding(rule, self._frame, message))

    def check(self, holds: bool, rule: str, message: str) -> bool:
        if not holds:
            self.report(rule, message)
        return holds

    def payload(self, state: _Choice, choice: dict[str, Any]) -> None:
        """The format's own members of a choice."""
        raise NotImplementedError

    def logprobs(self, value: dict[str, Any]) -> None:
        raise NotImplementedError

    def _error(self, chunk: dict[str, Any]) -> None:
        self._errors += 1
        error = chunk["error"]
        shape = isinstance(error, dict) and error.keys() >= {"message", "type", "param", "code"}
        self.check(shape and isinstance(error["message"], str), "error", "the error lacks its envelope")
        everything_closed = all(choice.finished for choice in self._choices.values())
        self.check(not everything_closed, "error-ends", "an error after everything was finished")

    def _chunk(self, chunk: dict[str, Any]) -> None:
        envelope = {name: chunk.get(name) for name in ("id", "object", "created", "model")}
        if self._envelope is None:
            self._envelope = envelope
            self.check(envelope["object"] == self.kind, "envelope", f"object is {envelope['object']!r}")
            types = isinstance(envelope["id"], str) and bool(envelope["id"]) and isinstance(envelope["model"], str)
            self.check(types and type(envelope["created"]) is int, "envelope", f"wrong types: {envelope}")
        self.check(envelope == self._envelope, "envelope", "id, object, created or model changed")
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            self.report("envelope", "choices must be a list")
            return
        self._usage(chunk.get("usage"), closing=not choices)
        for choice in choices:
            self._choice(choice)

    def _usage(self, usage: Any, *, closing: bool) -> None:
        if closing:
            self._usages += 1
            self.check(self._expect.usage is not False, "usage", "a usage chunk that nobody asked for")
            self.check(self._usages == 1, "usage", "a second usage chunk")
            closed = all(choice.finished for choice in self._choices.values())
            self.check(closed, "usage", "the usage chunk came before the last finish")
            if not self.check(isinstance(usage, dict), "usage", "an empty chunk without usage"):
                return
        elif self._expect.running_usage:
            if not self.check(isinstance(usage, dict), "usage", "running usage is missing"):
                return
        else:
            self.check(usage is None, "usage", "usage in a chunk that has choices")
            return
        self._usage_numbers(usage)

    def _usage_numbers(self, usage: dict[str, Any]) -> None:
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
        numbers = [count for count in counts if type(count) is int and count >= 0]
        if not self.check(len(numbers) == 3, "usage", f"not token counts: {usage}"):
            return
        prompt, completion, total = numbers
        self.check(prompt + completion == total, "usage", "total_tokens is not the sum")
        self.check(completion >= self._running, "usage", "completion_tokens went down")
        self._running = completion

    def _choice(self, choice: Any) -> None:
        if not isinstance(choice, dict):
            self.report("choice", f"a choice must be an object: {choice!r}")
            return
        index = choice.get("index")
        if type(index) is not int or index not in self._choices:
            self.report("choice", f"index {index!r} of {len(self._choices)} choices")
            return
        state = self._choices[index]
        self.check(not state.finished, "finish", f"a chunk of choice {index} after its finish")
        if not self.check("finish_reason" in choice, "finish", "finish_reason is missing"):
            return
        self._no_nulls(choice)
        self.payload(state, choice)
        if "logprobs" in choice and isinstance(choice["logprobs"], dict):
            self.logprobs(choice["logprobs"])
        state.chunks += 1
        reason = choice["finish_reason"]
        if reason is not None:
            state.finished = True
            self.check(reason in self.reasons, "finish", f"finish_reason {reason!r}")
            calls = reason != "tool_calls" or bool(state.calls)
            self.check(calls, "finish", "finish_reason tool_calls without a call")

    def _no_nulls(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        for name, value in [*choice.items(), *(delta.items() if isinstance(delta, dict) else ())]:
            if name != "finish_reason":
                self.check(value is not None, "absent", f"{name} is null instead of absent")


class ChatLint(StreamLint):
    """`chat.completion.chunk` streams."""

    kind = "chat.completion.chunk"
    reasons = CHAT_REASONS

    def payload(self, state: _Choice, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            self.report("delta", "a choice needs a delta object")
            return
        if state.chunks == 0:
            self.check(delta.get("role") == "assistant", "role", "the first chunk must carry the role")
        else:
            self.check("role" not in delta, "role", "the role came again")
        for name in _TEXT_KEYS:
            self.check(isinstance(delta.get(name, ""), str), "delta", f"{name} must be text")
        calls = delta.get("tool_calls", [])
        if self.check(isinstance(calls, list), "tool-call", "tool_calls must be a list"):
            for call in calls:
                self._call(state, call)
        if "refusal" in delta:
            state.refusals += 1
            self.check(state.refusals == 1, "refusal", "a second refusal")
            self.check(not state.calls, "refusal", "a refusal beside tool calls")

    def _call(self, state: _Choice, call: Any) -> None:
        if not isinstance(call, dict):
            self.report("tool-call", f"a call must be an object: {call!r}")
            return
        index, function = call.get("index"), call.get("function") or {}
        if not self.check(isinstance(function, dict), "tool-call", "a function must be an object"):
            return
        self.check(isinstance(function.get("arguments"), str), "tool-call", "arguments must be a string")
        if index == len(state.calls):
            named = bool(call.get("id")) and call.get("type") == "function" and bool(function.get("name"))
            self.check(named, "tool-call", f"call {index} opens without id, type or name")
            self.check(call.get("id") not in state.calls, "tool-call", "two calls have the same id")
            state.calls.append(str(call.get("id")))
        elif type(index) is int and 0 <= index < len(state.calls):
            self.check("name" not in function, "tool-call", f"call {index} was named again")
            self.check(call.get("id", state.calls[index]) == state.calls[index], "tool-call", "the id changed")
        else:
            self.report("tool-call", f"call {index!r} after {len(state.calls)} calls")

    def logprobs(self, value: dict[str, Any]) -> None:
        entries = value.get("content") or []
        if not self.check(isinstance(entries, list), "logprobs", "content must be a list"):
            return
        for entry in entries:
            tops = entry.get("top_logprobs") if isinstance(entry, dict) else None
            for item in [entry, *(tops if isinstance(tops, list) else [None])]:
                shape = isinstance(item, dict) and isinstance(item.get("token"), str) and _number(item.get("logprob"))
                self.check(shape, "logprobs", f"not a log probability: {item!r}")


class CompletionLint(StreamLint):
    """`text_completion` streams."""

    kind = "text_completion"
    reasons = COMPLETION_REASONS

    def payload(self, state: _Choice, choice: dict[str, Any]) -> None:
        self.check(isinstance(choice.get("text"), str), "delta", "text must be a string")
        self.check("delta" not in choice, "delta", "a completion has no delta")

    def logprobs(self, value: dict[str, Any]) -> None:
        columns: tuple[tuple[str, Callable[[Any], bool]], ...] = (
            ("tokens", lambda item: isinstance(item, str)),
            ("token_logprobs", lambda item: item is None or _number(item)),
            (
                "top_logprobs",
                lambda item: item is None or (isinstance(item, dict) and all(map(_number, item.values()))),
            ),
            ("text_offset", lambda item: type(item) is int and item >= 0),
        )
        lengths = set()
        for name, legal in columns:
            column = value.get(name)
            if self.check(isinstance(column, list) and all(map(legal, column)), "logprobs", f"{name}: {column!r}"):
                lengths.add(len(value[name]))
        self.check(len(lengths) <= 1, "logprobs", "the lists differ in length")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
