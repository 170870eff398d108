"""The seam between a surface and whatever answers: the local pipeline, another server, or a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from millstream.ir.deltas import Delta
from millstream.ir.request import Request


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


class Provider(Protocol):
    """Something that answers requests with delta streams."""

    def models(self) -> list[ModelCard]: ...

    async def stream(self, request: Request) -> DeltaStream:
        """Accept a request. The returned stream is guarded: it obeys the laws of `millstream.ir.guard`.

        Raises:
            ApiError: the request is refused; nothing was queued.
        """
        ...
