"""What every wire format has: the call it decodes, the options of its answer, and the seam that a server drives."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

import msgspec

from millstream.ir.deltas import Delta
from millstream.ir.errors import ApiError
from millstream.ir.fold import Answer
from millstream.ir.request import Request

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the HTTP request that is being answered, for the formats that repeat it in their envelopes."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds that the operator sets on what one request may ask for. ``sequences``: answers over all its prompts."""

    choices: int = 128
    sequences: int = 128
    messages: int = 10_000
    stop_token_ids: int = 4096
    stop_strings: int = 16
    stop_characters: int = 4096
    top_logprobs: int = 20
    json_depth: int = 32
    tools: int = 1024
    schema_depth: int = 64


class WireOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one answer is written, apart from what it says.

    ``usage``: a closing usage chunk; ``running_usage``: usage so far in every chunk. ``token_ids`` and ``logprobs``:
    the caller asked for them (deltas may carry more than was asked for, as a surface may need it itself).
    ``hide_reasoning``: reasoning is told by its signature only.
    """

    model: str = ""
    stream: bool = False
    choices: int = 1
    usage: bool = False
    running_usage: bool = False
    token_ids: bool = False
    logprobs: bool = False
    hide_reasoning: bool = False


class Call(msgspec.Struct, frozen=True):
    """A decoded HTTP body: what to answer, and how to write it. ``warnings``: what of it was left out, and why.
    ``tool_paths``: where the body declares each tool of the request; empty: one by one in ``tools``."""

    request: Request
    options: WireOptions
    warnings: tuple[str, ...] = ()
    tool_paths: tuple[str, ...] = ()


class StreamEncoder(Protocol):
    """Writes one stream. The order of calls is: `start`, `encode` for each delta, `end`; `ping` at any moment between.

    Every method gives zero or more whole frames, so that the caller may write them at once.
    """

    def start(self) -> bytes:
        """Frames that come before the first delta."""
        ...

    def encode(self, delta: Delta) -> bytes: ...

    def end(self) -> bytes:
        """The last frames; nothing follows them."""
        ...

    def ping(self, silent_seconds: float) -> bytes:
        """A frame that tells nothing but that the server lives. ``silent_seconds``: since the last frame with data."""
        ...


class Surface(Protocol):
    """One wire format. The modules of this package are surfaces: pass the module itself."""

    NAME: str
    FIELD_NAMES: Mapping[str, str]
    """The surface's names of request fields, where they differ from those of the IR (which are chat's)."""

    def decode(self, body: bytes, limits: Limits = ...) -> Call:
        """Raises `ApiError` (400) that names the field at fault."""
        ...

    def stream_encoder(
        self, options: WireOptions, *, response_id: str | None = ..., created: int | None = ...
    ) -> StreamEncoder: ...

    def encode_answer(
        self, answer: Answer, options: WireOptions, *, response_id: str | None = ..., created: int | None = ...
    ) -> bytes:
        """The body of the non-streamed answer. ``answer.error`` must be None."""
        ...

    def encode_error(self, error: ApiError) -> bytes:
        """The body of a failure."""
        ...


def in_words_of(surface: Surface, error: ApiError, call: Call | None) -> ApiError:
    """A provider's refusal of a call with the field at fault as the body names it; ``call`` None: nothing of the body
    was changed yet."""
    field = error.param or ""
    own = surface.FIELD_NAMES.get(field)
    if call is not None:
        paths = {f"tools[{position}]": path for position, path in enumerate(call.tool_paths)}
        own = paths.get(field, own)
    if own is not None:
        error.param = own
        if error.message.startswith(field):
            error.message = own + error.message.removeprefix(field)
    return error
