"""A chat with the server: its turns, and one answer as it grows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from millstream.tui.errors import ServerError, problem_text
from millstream.tui.sse import Event

MAX_CHARS = 400_000
"""Longest answer that is kept; what comes after it is counted and dropped."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    function: _Function = msgspec.field(default_factory=_Function)


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Chunk(msgspec.Struct):
    """What is read of a ``chat.completion.chunk``, or of the error that ends a stream."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


def read_chunk(event: Event) -> Chunk:
    """Raises `ServerError` for an error of the stream, and for what is no chunk."""
    data = event.data.encode("utf-8", "replace")
    try:
        chunk = msgspec.json.decode(data, type=Chunk)
    except (msgspec.DecodeError, RecursionError):
        raise ServerError("the answer's stream cannot be read; is this Millstream?") from None
    if chunk.error is not None:
        raise ServerError(problem_text(data) or "the answer failed.")
    return chunk


@dataclass
class Answer:
    """An answer so far. ``calls``: name and arguments by index. ``problem``: why it is not whole."""

    thinking: str = ""
    content: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    problem: str = ""
    seconds: float | None = None

    def take(self, chunk: Chunk) -> None:
        """Add what a chunk brings."""
        for choice in chunk.choices[:1]:
            self.thinking = (self.thinking + (choice.delta.reasoning_content or ""))[:MAX_CHARS]
            self.content = (self.content + (choice.delta.content or ""))[:MAX_CHARS]
            for call in (choice.delta.tool_calls or [])[:64]:
                entry = self.calls.setdefault(call.index, ["", ""])
                entry[0] = entry[0] or call.function.name or ""
                entry[1] = (entry[1] + (call.function.arguments or ""))[:MAX_CHARS]
            self.finish_reason = choice.finish_reason or self.finish_reason
        if chunk.usage is not None:
            self.prompt_tokens, self.completion_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens


@dataclass
class Turn:
    """A question and its answer."""

    question: str
    answer: Answer = field(default_factory=Answer)


def messages_of(turns: list[Turn]) -> list[dict[str, str]]:
    """The conversation as a request carries it: answers without their thoughts, as models are trained on them; a turn
    without an answer is left open."""
    messages = []
    for turn in turns:
        messages.append({"role": "user", "content": turn.question})
        if turn.answer.content:
            messages.append({"role": "assistant", "content": turn.answer.content})
    return messages
