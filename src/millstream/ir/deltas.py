"""The provider-neutral stream: every answer is a sequence of these deltas.

Each delta names its choice (0 unless ``n`` > 1). A stream is an optional `Start`, then content deltas of all choices
interleaved, then one `Finish` per choice; an `Error` ends the whole stream and no `Finish` follows it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class TopLogprob(msgspec.Struct, frozen=True, gc=False):
    """One alternative at a position."""

    token_id: int
    text: str
    bytes: bytes
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, gc=False):
    """Natural-log probability of one token under the model's own distribution, with the best alternatives.

    ``logprob`` is NaN for the first token of an echoed prompt, which nothing precedes. ``shown``: whether the token's
    bytes are part of the text (those of control tokens are not).
    """

    token_id: int
    text: str
    bytes: bytes
    logprob: float
    top: tuple[TopLogprob, ...] = ()
    shown: bool = True


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts of one choice. ``prompt_tokens`` includes ``cached_tokens``, ``completion_tokens`` includes
    ``reasoning_tokens``; over several choices each prompt counts once. ``drafted_tokens`` were tried ahead by
    speculation, ``accepted_tokens`` of them were right."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Start(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="delta"):
    """The request was admitted to a batch: what a prompt cost. At most one per prompt (a chat has one prompt, number
    0), the first before everything else."""

    prompt_tokens: int
    cached_tokens: int = 0
    prompt: int = 0


class Content(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="delta"):
    """Visible text. ``token_ids`` and ``logprobs`` are filled only when asked for."""

    text: str
    choice: int = 0
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class Reasoning(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="delta"):
    """Thinking text; may come again after `Content` or a tool call."""

    text: str
    choice: int = 0
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class ToolCallStart(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="delta"):
    """A call begins: sent once, as soon as its name is known. ``index`` counts calls in order of appearance."""

    index: int
    id: str
    name: str
    choice: int = 0
    token_ids: tuple[int, ...] = ()


class ToolCallArgs(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="delta"):
    """A fragment of JSON text; the fragments of one call join to its arguments."""

    index: int
    fragment: str
    choice: int = 0
    token_ids: tuple[int, ...] = ()


class Refusal(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="delta"):
    """The visible text was recognised as a refusal; at most one, just before `Finish`, only without tool calls."""

    text: str
    choice: int = 0


class Finish(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="delta"):
    """Closes its choice. ``token_ids`` and ``logprobs`` are those that no earlier delta carried."""

    reason: FinishReason
    usage: Usage
    choice: int = 0
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    stop_sequence: str | None = None


class Error(msgspec.Struct, frozen=True, gc=False, tag=True, tag_field="delta"):
    """Ends the stream, whatever choices are still open. The fields are those of `millstream.ir.errors.ApiError`."""

    message: str
    type: str = "server_error"
    code: str | None = None
    status: int = 500
    param: str | None = None
    retry_after: float | None = None


Delta = Start | Content | Reasoning | ToolCallStart | ToolCallArgs | Refusal | Finish | Error
