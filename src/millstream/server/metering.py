"""What a request costs its key: an estimate before it is queued, the truth while its answer is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from millstream.ir.deltas import Delta, Error, Finish, Refusal, Start
from millstream.ir.fold import UsageCounter
from millstream.ir.provider import DeltaStream
from millstream.ir.request import ChatRequest, EmbeddingRequest, Request
from millstream.keys.ledger import Claim

_CHARACTERS_PER_TOKEN = 4
"""A guess; the prompt is counted when it is computed, and the guess forgotten."""


def estimated_tokens(request: Request | EmbeddingRequest) -> int:
    """Tokens of a request's prompts: counted where they are token ids, estimated where they are text."""
    if isinstance(request, ChatRequest):
        return _estimate(message.content for message in request.messages)
    return _estimate(request.inputs if isinstance(request, EmbeddingRequest) else request.prompts)


def _estimate(prompts: Iterable[str | tuple[int, ...]]) -> int:
    return sum(
        -(-len(prompt) // _CHARACTERS_PER_TOKEN) if isinstance(prompt, str) else len(prompt) for prompt in prompts
    )


class Metered:
    """A stream that charges a claim as it is read, so that an answer that is broken off has its price too.

    Deltas must carry token ids (`Terms.applied` asks for them).
    """

    def __init__(self, stream: DeltaStream, claim: Claim, request: Request) -> None:
        self._stream = stream
        self._claim = claim
        self._usage = UsageCounter(request.choices)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        delta = await self._stream.__anext__()
        if isinstance(delta, Start | Finish):
            self._usage.feed(delta)
            total = self._usage.total
            self._claim.used(prompt=total.prompt_tokens, cached=total.cached_tokens, completion=total.completion_tokens)
        elif not isinstance(delta, Error | Refusal) and delta.token_ids:
            self._usage.feed(delta)
            self._claim.generated(len(delta.token_ids))
        return delta

    async def aclose(self) -> None:
        await self._stream.aclose()
