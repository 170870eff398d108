"""Reading along: what one HTTP request sends to the engine, and the tokens that come back."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from millstream import __version__
from millstream.engine.protocol import (
    EngineInfo,
    EngineStats,
    SequenceControl,
    SequenceView,
    TokenDelta,
    TokenEngine,
    TokenFinish,
    TokenRequest,
    TokenStream,
)
from millstream.journal.records import EngineFacts, Sequence, named

MAX_BODY = 4 << 20
"""Bytes of a body that are recorded at most; the prompt is there as token ids in any case."""

recording: ContextVar[Recording | None] = ContextVar("recording", default=None)
"""What reads along with the request that is being answered; None: nothing does."""


class Source(NamedTuple):
    """Whose tokens they are. ``name``: what clients call the model; ``path``: its file."""

    name: str
    path: Path
    engine: EngineFacts


class Recording:
    """What has come of one HTTP request so far. Its sequences appear in the order in which they were submitted."""

    def __init__(self) -> None:
        self._body: list[bytes] = []
        self._kept = 0
        self.body_bytes = 0
        self._sequences: list[FollowedStream] = []
        self.source: Source | None = None

    def see_body(self, chunk: bytes) -> None:
        """A piece of the body, as it is received."""
        self.body_bytes += len(chunk)
        if self.body_bytes <= MAX_BODY:
            self._body.append(chunk)
        else:
            self._body.clear()

    def follow(self, request: TokenRequest, stream: TokenStream, source: Source) -> TokenStream:
        """The same stream, remembered."""
        self.source = source
        followed = FollowedStream(request, stream)
        self._sequences.append(followed)
        return followed

    @property
    def body(self) -> str | None:
        """The body so far; None if it is too long or no UTF-8."""
        if self.body_bytes > MAX_BODY:
            return None
        try:
            return b"".join(self._body).decode()
        except UnicodeDecodeError:
            return None

    @property
    def weight(self) -> int:
        """About how many bytes this takes."""
        ids = sum(len(each.request.prompt) + len(each.tokens) for each in self._sequences)
        return min(self.body_bytes, MAX_BODY) + 8 * ids

    def sequences(self) -> list[Sequence]:
        return [each.sequence() for each in self._sequences]


class FollowedStream:
    """A token stream whose tokens are kept."""

    def __init__(self, request: TokenRequest, stream: TokenStream) -> None:
        self.request = request
        self.tokens: list[int] = []
        self._stream = stream
        self._finish: TokenFinish | None = None
        self._error: str | None = None
        self._embedding: bytes | None = None

    def __aiter__(self) -> AsyncIterator[TokenDelta]:
        return self

    async def __anext__(self) -> TokenDelta:
        delta = await self._stream.__anext__()
        self.tokens += delta.tokens
        if delta.finish is not None:
            self._finish, self._error, self._embedding = delta.finish, delta.error, delta.embedding
        return delta

    async def aclose(self) -> None:
        await self._stream.aclose()

    def sequence(self) -> Sequence:
        # A deadline is a moment of this machine's clock, which means nothing later.
        digest = hashlib.sha256(self._embedding).hexdigest() if self._embedding is not None else None
        return Sequence(
            request=named(replace(self.request, deadline=None)),
            tokens=self.tokens,
            finish=self._finish,
            error=self._error,
            embedding=digest,
        )


class SteerableEngine(TokenEngine, SequenceControl, Protocol):
    """An engine whose sequences an operator can steer."""


class RecordedEngine:
    """An engine whose sequences are told to the `recording` of whoever submits them."""

    def __init__(self, engine: SteerableEngine, *, name: str, path: Path, prefix_cache: bool = True) -> None:
        """``name``, ``path``: of the model that the engine runs."""
        info = engine.info
        self._engine = engine
        facts = EngineFacts(
            version=__version__,
            isa=info.isa,
            threads=info.threads,
            context_length=info.context_length,
            kv_tokens=info.kv_tokens,
            prefix_cache=prefix_cache,
            kv_type=info.kv_type,
            activations=info.activations,
        )
        self._source = Source(name, path, facts)

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    async def submit(self, request: TokenRequest) -> TokenStream:
        """See `TokenEngine.submit`."""
        stream = await self._engine.submit(request)
        current = recording.get()
        return stream if current is None else current.follow(request, stream, self._source)

    async def stats(self) -> EngineStats:
        return await self._engine.stats()

    async def sequences(self) -> list[SequenceView]:
        """See `SequenceControl`, as for those that follow."""
        return await self._engine.sequences()

    def hold(self, request_id: str) -> bool:
        return self._engine.hold(request_id)

    def release(self, request_id: str) -> bool:
        return self._engine.release(request_id)

    def reprioritise(self, request_id: str, priority: int) -> bool:
        return self._engine.reprioritise(request_id, priority)

    async def close(self) -> None:
        await self._engine.close()
