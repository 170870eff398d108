"""Embeddings: texts become token sequences that are only read, and their pooled hidden states become unit vectors."""

from __future__ import annotations

import asyncio
import math
import struct
import uuid
from collections import deque
from collections.abc import Sequence

from millstream.engine.protocol import Pooling, SamplingParams, TokenEngine, TokenRequest, TokenStream
from millstream.ir.errors import ApiError, engine_failed, invalid
from millstream.ir.provider import Embeddings
from millstream.ir.request import EmbeddingRequest
from millstream.models.interfaces import Tokenizer
from millstream.pipeline.sequences import check_ids
from millstream.pipeline.timeouts import deadline_of, timed_out

_IN_FLIGHT = 32
"""Inputs of one request that are in the engine at a time: enough to fill its steps, few enough to leave room in its
queue for others."""

_TOO_MANY_REQUESTS = 429


class Embedder:
    """Answers embedding requests on one engine."""

    def __init__(self, engine: TokenEngine, tokenizer: Tokenizer, pooling: Pooling) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._pooling = pooling

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """See `millstream.ir.provider.EmbeddingProvider`."""
        size = self._engine.info.hidden_size
        if not size:
            raise ApiError("The engine behind this model makes no embeddings.", status=501)
        if request.dimensions is not None and not 1 <= request.dimensions <= size:
            raise invalid(
                f"dimensions must be between 1 and {size}, not {request.dimensions}: the model's vectors have {size}.",
                param="dimensions",
            )
        prompts = await asyncio.to_thread(self._prompts, request)
        vectors = await self._vectors(request, prompts)
        return Embeddings(
            vectors=[_unit(vector, request.dimensions) for vector in vectors],
            prompt_tokens=sum(map(len, prompts)),
        )

    def _prompts(self, request: EmbeddingRequest) -> list[list[int]]:
        info = self._engine.info
        longest = min(info.context_length, info.kv_tokens)
        prompts = []
        for index, wire in enumerate(request.inputs):
            path = "input" if len(request.inputs) == 1 else f"input[{index}]"
            ids = self._encode(wire, path)
            if len(ids) > longest:
                raise invalid(
                    f"This model's maximum context length is {longest} tokens, but {path} has {len(ids)}. Shorten it.",
                    param=path,
                    code="context_length_exceeded",
                )
            prompts.append(ids)
        return prompts

    def _encode(self, wire: str | tuple[int, ...], path: str) -> list[int]:
        if not isinstance(wire, str):
            check_ids(wire, self._engine.info.vocab_size, path)
            return list(wire)
        try:
            ids = self._tokenizer.encode(wire, add_bos=True)
        except UnicodeEncodeError:
            raise invalid("The text contains a lone surrogate, which is no character.", param=path) from None
        if not ids:
            raise invalid(f"{path} has no tokens.", param=path)
        return ids

    async def _vectors(self, request: EmbeddingRequest, prompts: Sequence[list[int]]) -> list[bytes]:
        """Pooled states in order; inputs are queued a few ahead of the one that is waited for."""
        identity = uuid.uuid4().hex
        deadline = deadline_of(request.service)
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
                    priority=request.service.priority,
                    deadline=deadline,
                    pooling=self._pooling,
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
            raise timed_out()
        if delta.finish is not None and delta.embedding is not None:
            return delta.embedding
    raise engine_failed("The engine ended the request without a vector.")


def _unit(vector: bytes, dimensions: int | None) -> bytes:
    """The leading ``dimensions`` components, scaled to length 1 (a zero vector stays)."""
    values = struct.unpack(f"<{len(vector) // 4}f", vector)[:dimensions]
    norm = math.sqrt(math.fsum(value * value for value in values))
    if not math.isfinite(norm):
        raise engine_failed("The model's hidden states are not finite numbers.")
    return struct.pack(f"<{len(values)}f", *(value / norm for value in values)) if norm else vector[: 4 * len(values)]
