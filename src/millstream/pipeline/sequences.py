"""What chats and completions share on the way to the engine: the stream of one choice, sampling numbers, checks."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import Protocol

from millstream.engine.protocol import SamplingParams, ThinkingBudget, TokenDelta, TokenRequest, TokenStream
from millstream.ir.deltas import Delta
from millstream.ir.errors import invalid
from millstream.ir.request import CompletionRequest, Request, Sampling, Service


class Decoder(Protocol):
    """Makes deltas of one choice's token steps: a `ChoiceDecoder`, or a stage around one."""

    @property
    def finished(self) -> bool: ...

    def feed(self, step: TokenDelta) -> list[Delta]: ...


class ChoiceStream:
    """Deltas of one choice, pulled from its token sequence; the sequence is aborted as soon as the choice has ended."""

    def __init__(self, tokens: TokenStream, decoder: Decoder) -> None:
        self._tokens = tokens
        self._decoder = decoder
        self._ready: deque[Delta] = deque()
        self._closed = False

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        while not self._ready:
            if self._closed:
                raise StopAsyncIteration
            self._ready.extend(self._decoder.feed(await self._tokens.__anext__()))
            if self._decoder.finished:
                await self._abort()
        return self._ready.popleft()

    async def aclose(self) -> None:
        self._ready.clear()
        await self._abort()

    async def _abort(self) -> None:
        if not self._closed:
            self._closed = True
            await self._tokens.aclose()


def new_identity(service: Service) -> str:
    """How the ids of some sequences of a request begin; no other sequences' do. See `handle_of`."""
    return f"{service.handle}-{secrets.token_hex(8)}"


def handle_of(sequence_id: str) -> str:
    """The handle of the request that a sequence belongs to."""
    return sequence_id.partition("-")[0]


def sampling_params(sampling: Sampling, logprobs: int | None, vocab_size: int) -> SamplingParams:
    """Sampling as the engine reads it; a seed is drawn if there is none."""
    seed = secrets.randbits(64) if sampling.seed is None else sampling.seed & (1 << 64) - 1
    return SamplingParams(
        temperature=sampling.temperature,
        top_k=min(sampling.top_k, vocab_size),
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=sampling.logit_bias,
        seed=seed,
        logprobs=logprobs,
    )


def token_requests(
    request: Request,
    prompt: list[int],
    *,
    count: int,
    ends: frozenset[int],
    room: int,
    params: SamplingParams,
    deadline: float | None,
    grammar: str | None = None,
    prompt_logprobs: int | None = None,
    thinking: ThinkingBudget | None = None,
) -> list[TokenRequest]:
    """One sequence per choice. ``ends``: tokens that end an answer; ``room``: tokens that the context leaves."""
    sampling = request.sampling
    identity = new_identity(request.service)
    stop_ids = tuple(sorted(ends | set(sampling.stop_token_ids)))
    return [
        TokenRequest(
            id=f"{identity}-{choice}",
            prompt=prompt,
            sampling=params,
            max_tokens=room if sampling.max_tokens is None else min(sampling.max_tokens, room),
            min_tokens=min(sampling.min_tokens, room),
            stop_ids=stop_ids,
            choice=choice,
            tenant=request.tenant,
            priority=request.service.priority or 0,
            deadline=deadline,
            speculation=request.service.speculation,
            grammar=grammar,
            prompt_logprobs=prompt_logprobs,
            thinking=thinking,
        )
        for choice in range(count)
    ]


def check_request(request: Request, vocab_size: int, eos_ids: frozenset[int]) -> None:
    """Refuse what no engine could honour. Raises `ApiError` (400)."""
    sampling = request.sampling
    least = 0 if isinstance(request, CompletionRequest) and request.echo else 1
    if request.n < 1:
        raise invalid(f"n must be at least 1, not {request.n}.", param="n")
    if sampling.max_tokens is not None and sampling.max_tokens < least:
        raise invalid(f"max_tokens must be at least {least}, not {sampling.max_tokens}.", param="max_tokens")
    if sampling.min_tokens < 0:
        raise invalid(f"min_tokens must not be negative, but is {sampling.min_tokens}.", param="min_tokens")
    if sampling.max_tokens is not None and sampling.min_tokens > sampling.max_tokens:
        raise invalid(
            f"min_tokens ({sampling.min_tokens}) must not exceed max_tokens ({sampling.max_tokens}).",
            param="min_tokens",
        )
    if "" in sampling.stop:
        raise invalid("A stop string must not be empty.", param="stop")
    check_ids(sampling.logit_bias, vocab_size, "logit_bias")
    check_ids(sampling.stop_token_ids, vocab_size, "stop_token_ids")
    ends = set(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else eos_ids)
    if sampling.min_tokens > 0 and len(ends) >= vocab_size:
        raise invalid("stop_token_ids names every token, so none may come before min_tokens.", param="stop_token_ids")


def check_ids(ids: Collection[int], vocab_size: int, param: str) -> None:
    """Refuse ids outside the vocabulary. Raises `ApiError` (400)."""
    if not ids:
        return
    for token_id in (min(ids), max(ids)):
        if not 0 <= token_id < vocab_size:
            raise invalid(
                f"{param} names token {token_id}, but the model's token ids are 0 to {vocab_size - 1}.", param=param
            )
