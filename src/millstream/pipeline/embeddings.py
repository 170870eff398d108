"""Embeddings: texts become token sequences that are only read, and their pooled hidden states become unit vectors."""

from __future__ import annotations

import asyncio
import math
import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, get_args

from millstream.engine.protocol import Pooling, SamplingParams, TokenEngine, TokenRequest, TokenStream
from millstream.ir.errors import ApiError, engine_failed, invalid
from millstream.ir.provider import Embeddings
from millstream.ir.request import EmbeddingRequest
from millstream.models.interfaces import Tokenizer
from millstream.pipeline.bounds import LengthBound
from millstream.pipeline.prompts import PromptReader, Wire
from millstream.pipeline.sequences import new_identity
from millstream.pipeline.timeouts import deadline_of, timed_out

_IN_FLIGHT = 32
"""Inputs of one request that are in the engine at a time: enough to fill its steps, few enough to leave room in its
queue for others."""

_TOO_MANY_REQUESTS = 429

_POOLINGS: dict[str, Pooling] = {kind: kind for kind in get_args(Pooling)}


class _Input(NamedTuple):
    ids: list[int]


class Embedder:
    """Answers embedding requests on one engine. ``pooling``: anything but a `Pooling` makes no embeddings."""

    def __init__(self, engine: TokenEngine, tokenizer: Tokenizer, bound: LengthBound, pooling: str) -> None:
        self._engine = engine
        self._reader = PromptReader(tokenizer, bound, engine.info.vocab_size)
        self._pooling = pooling

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """See `millstream.ir.provider.EmbeddingProvider`."""
        deadline = deadline_of(request.service)
        info = self._engine.info
        if not info.hidden_size:
            raise ApiError(
                "The engine behind this model makes no embeddings.", code="embeddings_unsupported", status=501
            )
        pooling = _POOLINGS.get(self._pooling)
        if pooling is None:
            raise _no_vector(self._pooling)
        if request.dimensions is not None and not 1 <= request.dimensions <= info.hidden_size:
            raise invalid(
                f"dimensions must be between 1 and {info.hidden_size}, not {request.dimensions}: the model's vectors "
                f"have {info.hidden_size}.",
                param="dimensions",
            )
        longest = min(info.context_length, info.kv_tokens)
        inputs = await self._reader.read(request.inputs, self._input, field="input", longest=longest, answered=False)
        prompts = [each.ids for each in inputs]
        vectors = await self._vectors(request, prompts, pooling, deadline)
        return Embeddings(
            vectors=[_unit(vector, request.dimensions) for vector in vectors],
            prompt_tokens=sum(map(len, prompts)),
        )

    def _input(self, wire: Wire, path: str) -> _Input:
        return _Input(self._reader.encode(wire, path))

    async def _vectors(
        self, request: EmbeddingRequest, prompts: Sequence[list[int]], pooling: Pooling, deadline: float | None
    ) -> list[bytes]:
        """Pooled states in order; inputs are queued a few ahead of the one that is waited for."""
        identity = new_identity(request.service)
        streams: deque[TokenStream] = deque()
        vectors: list[bytes] = []

        async def take() -> None:
            vectors.append(await _pooled(streams[0]))
            streams.popleft()

        try:
            for index, prompt in enumerate(prompts):
                if len(streams) == _IN_FLIGHT:
                    await take()
                sequence = TokenRequest(
                    id=f"{identity}-{index}",
                    prompt=prompt,
                    sampling=SamplingParams(),
                    max_tokens=0,
                    tenant=request.tenant,
                    priority=request.service.priority or 0,
                    deadline=deadline,
                    pooling=pooling,
                )
                while True:
                    try:
                        streams.append(await self._engine.submit(sequence))
                        break
                    except ApiError as error:
                        # A full queue that holds inputs of this request has room once they are done.
                        if error.status != _TOO_MANY_REQUESTS or not streams:
                            raise
                        await take()
            while streams:
                await take()
        finally:
            await asyncio.gather(*(stream.aclose() for stream in streams), return_exceptions=True)
        return vectors


async def _pooled(stream: TokenStream) -> bytes:
    async for delta in stream:
        if delta.finish == "error":
            raise engine_failed(f"The engine failed: {delta.error}.")
        if delta.finish == "timeout":
            raise timed_out("the vector was there")
        if delta.finish is not None and delta.embedding is not None:
            return delta.embedding
    raise engine_failed("The engine ended the request without a vector.")


def _no_vector(pooling: str) -> ApiError:
    """Why a model with such a pooling makes no embeddings."""
    if pooling == "rank":
        why = "it ranks pairs of texts (the pooling type in its file is 'rank')"
    elif pooling == "none":
        why = "the pooling type in its file is 'none', which gives a vector for each token and none for the text"
    else:
        why = f"the pooling type in its file is {pooling!r}, which is not known"
    return ApiError(
        f"This model makes no embeddings: {why}. `--pooling mean`, `cls` or `last` makes the server make some.",
        code="embeddings_unsupported",
        status=501,
    )


def _unit(vector: bytes, dimensions: int | None) -> bytes:
    """The leading ``dimensions`` components, scaled to length 1 (a zero vector stays)."""
    values = struct.unpack(f"<{len(vector) // 4}f", vector)[:dimensions]
    norm = math.sqrt(math.fsum(value * value for value in values))
    if not math.isfinite(norm):
        raise engine_failed("The model's hidden states are not finite numbers.")
    return struct.pack(f"<{len(values)}f", *(value / norm for value in values)) if norm else vector[: 4 * len(values)]
