"""The seam between a surface and whatever answers: the local pipeline, another server, or a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from millstream.ir.deltas import Delta
from millstream.ir.request import ChatRequest, EmbeddingRequest, Request


class DeltaStream(Protocol):
    """Deltas of one answer. `aclose` at any moment cancels the work behind it; it may be called twice. A reader that
    waits in another task then sees the end of the stream."""

    def __aiter__(self) -> AsyncIterator[Delta]: ...

    async def __anext__(self) -> Delta: ...

    async def aclose(self) -> None: ...


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """What `/v1/models` tells about a model. ``created``: Unix seconds."""

    id: str
    created: int
    context_length: int
    owned_by: str = "millstream"


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    """One vector per input, in order: little-endian float32, of length 1."""

    vectors: list[bytes]
    prompt_tokens: int


class Provider(Protocol):
    """Something that answers requests with delta streams."""

    def models(self) -> list[ModelCard]: ...

    async def stream(self, request: Request) -> DeltaStream:
        """Accept a request. The returned stream is guarded: it obeys the laws of `millstream.ir.guard`.

        Raises:
            ApiError: the request is refused; nothing was queued.
        """
        ...


@runtime_checkable
class EmbeddingProvider(Protocol):
    """What a provider can also do if its engine tells hidden states."""

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """The vectors of a request; cancelling frees what is queued.

        Raises:
            ApiError: 404 unknown model; 400 an input that cannot be run, by its path; whatever the engine refuses.
        """
        ...


@runtime_checkable
class PromptTools(Protocol):
    """What a provider can also do if it makes prompts itself: show and count them. Nothing here waits for the engine.

    ``model`` None means the provider's first model. All raise `ApiError` for an unknown model or what cannot be done.
    """

    async def render(self, request: ChatRequest) -> str:
        """The prompt as text, exactly as `Provider.stream` would make it."""
        ...

    async def prompt_tokens(self, request: ChatRequest) -> Sequence[int]:
        """The prompt as token ids; their number is what usage will report. It may exceed the context."""
        ...

    async def tokenize(self, text: str, *, model: str | None = None, add_special: bool = True) -> Sequence[int]:
        """Ids of a text; ``add_special``: with BOS, if the model begins texts with one."""
        ...

    async def detokenize(self, tokens: Sequence[int], *, model: str | None = None) -> str:
        """The text of ids, control tokens by name; bytes that are no UTF-8 become U+FFFD."""
        ...
