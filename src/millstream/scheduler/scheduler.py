"""Continuous batching: which tokens run in the next step, and what became of those that ran.

No I/O and no clock: `schedule` picks the work of one step, the caller runs it, `commit` takes the sampled tokens.
The rule, in order: every decoding sequence gets its one token; the rest of the budget goes to prompts, oldest first, in
chunks; new sequences are admitted while blocks, places and budget last. A decode that finds no block takes the place of
the sequence served last, which is put back in the queue and computed again later.
"""

from __future__ import annotations

import logging
from bisect import insort
from typing import TYPE_CHECKING

import msgspec

from millstream.engine.protocol import EngineStats, TokenAlternatives, TokenDelta, TokenFinish, TokenRequest
from millstream.scheduler.blocks import BlockPool, chain_digest
from millstream.scheduler.sequence import NO_POSITIONS, Constraint, Sequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes: ``step_tokens`` bounds the tokens of one step, ``max_sequences`` the batch, ``max_waiting`` the queue."""

    kv_blocks: int
    block_size: int
    step_tokens: int = 256
    max_sequences: int = 64
    max_waiting: int = 256
    prefix_cache: bool = True


class Chunk(msgspec.Struct, frozen=True):
    """Work of one sequence in one step: its tokens from ``start`` on, ``count`` of them. ``sample``: the last one's
    logits are drawn from. ``hidden``: so many of the last rows' hidden states are wanted. ``score``: positions whose
    logits tell the log probability of the token that follows, which is known."""

    sequence: Sequence
    start: int
    count: int
    sample: bool
    hidden: int = 0
    score: range = NO_POSITIONS


class Sampled(msgspec.Struct, frozen=True):
    """What a step drew: for each chunk with ``sample``, in order, a token and, if asked for, its log probabilities; for
    each chunk with ``hidden``, in order, these rows [hidden, hidden size]; for each chunk with ``score``, in order, the
    log probabilities of the tokens that follow these positions."""

    tokens: list[int]
    logprobs: list[TokenAlternatives | None]
    hidden: list[NDArray[np.float32]] = []
    scores: list[list[TokenAlternatives]] = []


class QueueFull(Exception):
    """The queue holds as many sequences as it may."""


class Scheduler:
    """Owns every sequence between `add` and its last delta."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.pool = BlockPool(config.kv_blocks, config.block_size)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.wait_reason: str | None = None
        self._arrivals = 0
        self._steps = 0
        self._prompt_tokens = 0
        self._generated_tokens = 0
        self._cached_tokens = 0
        self._preemptions = 0

    def add(self, request: TokenRequest, constraint: Constraint | None = None) -> None:
        """Queue a request. ``constraint`` has been advanced by the request's ``output``.

        Raises:
            ValueError: it can never fit, or has nothing to run.
            QueueFull: every place in the batch and in the queue is taken.
        """
        longest = len(request.prompt) + request.max_tokens
        capacity = self.config.kv_blocks * self.config.block_size
        if not request.prompt or (not request.only_read and request.max_tokens <= len(request.output)):
            raise ValueError("a request needs at least one prompt token and one token to generate")
        if longest > capacity:
            raise ValueError(f"the request may grow to {longest} tokens, but the KV cache holds {capacity}")
        if len(self.running) + len(self.waiting) >= self.config.max_sequences + self.config.max_waiting:
            raise QueueFull
        self._arrivals += 1
        insort(self.waiting, Sequence(request, self._arrivals, constraint), key=_rank)

    def abort(self, request_id: str) -> None:
        """Drop a sequence and free its blocks; unknown or finished ids are ignored."""
        for queue in (self.running, self.waiting):
            for index, sequence in enumerate(queue):
                if sequence.id == request_id:
                    del queue[index]
                    self._free(sequence)
                    return

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def schedule(self) -> list[Chunk]:
        """The chunks of the next step; empty if there is nothing to do."""
        chunks = self._schedule_decodes()
        budget = self.config.step_tokens - len(chunks)
        decoding = {chunk.sequence.id for chunk in chunks}
        for sequence in self.running:
            if budget > 0 and sequence.id not in decoding:
                budget -= self._take_chunk(chunks, sequence, budget)
        self.wait_reason = None
        while self.waiting:
            if budget <= 0:
                self.wait_reason = "step_budget"
            elif len(self.running) >= self.config.max_sequences:
                self.wait_reason = "max_sequences"
            elif not self._admit(self.waiting[0]):
                self.wait_reason = "kv_cache"
            if self.wait_reason:
                break
            sequence = self.waiting.pop(0)
            insort(self.running, sequence, key=_rank)
            budget -= self._take_chunk(chunks, sequence, budget)
        return chunks

    def commit(self, chunks: list[Chunk], sampled: Sampled) -> list[TokenDelta]:
        """Record a step that ran; returns what is new for each sequence."""
        self._steps += 1
        deltas: list[TokenDelta] = []
        row = 0
        hidden, scores = iter(sampled.hidden), iter(sampled.scores)
        for chunk in chunks:
            sequence = chunk.sequence
            sequence.computed = chunk.start + chunk.count
            self._register(sequence)
            delta = None
            if chunk.hidden and sequence.pool is not None:
                sequence.pool.add(next(hidden))
            if sequence.request.only_read and not sequence.pending:
                delta = self._finish_reading(sequence)
            elif chunk.sample:
                delta = self._append(sequence, sampled.tokens[row], sampled.logprobs[row])
                row += 1
            elif not sequence.announced:
                delta = TokenDelta(id=sequence.id, cached_tokens=sequence.cached_tokens)
            if chunk.score:
                delta = self._scored(chunk, next(scores), delta)
            if delta is not None:
                sequence.announced = True
                deltas.append(delta)
        return deltas

    def fail(self, chunks: list[Chunk], reason: str) -> list[TokenDelta]:
        """End every sequence of a step that could not run."""
        deltas = []
        for chunk in chunks:
            self.abort(chunk.sequence.id)
            deltas.append(TokenDelta(id=chunk.sequence.id, finish="error", error=reason))
        return deltas

    def stats(self) -> EngineStats:
        return EngineStats(
            running=len(self.running),
            waiting=len(self.waiting),
            wait_reason=self.wait_reason if self.waiting else None,
            kv_blocks_used=self.pool.used,
            kv_blocks_total=self.pool.count,
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated_tokens,
            cached_tokens=self._cached_tokens,
            preemptions=self._preemptions,
        )

    def _schedule_decodes(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        for sequence in list(self.running):
            if sequence.pending != 1 or sequence not in self.running:
                continue
            if len(chunks) >= self.config.step_tokens or not self._grow(sequence):
                continue
            chunks.append(_chunk(sequence, 1))
        return chunks

    def _grow(self, sequence: Sequence) -> bool:
        """Make room for the next token; False if the sequence itself had to leave the batch."""
        needed = self.pool.blocks_for(len(sequence.tokens)) - len(sequence.blocks)
        while self.pool.available < needed:
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.blocks += self.pool.allocate(needed)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._preemptions += 1
        self.running.remove(sequence)
        self._free(sequence)
        if sequence.pool is not None:
            sequence.pool.reset()
        insort(self.waiting, sequence, key=_rank)

    def _admit(self, sequence: Sequence) -> bool:
        """Give a waiting sequence blocks for all tokens it has, sharing those that the prefix cache knows.

        One spare block for each running sequence is left, so that an admission does not cause a preemption at once.
        """
        pool = self.pool
        tenant = sequence.request.tenant
        shared, digest = pool.match(tenant, sequence.cacheable) if self.config.prefix_cache else ([], b"")
        needed = pool.blocks_for(len(sequence.tokens)) - len(shared)
        spare = len(self.running)
        if pool.available < needed + (len(shared) - pool.held(shared)) + spare:
            return False
        pool.hold(shared)
        sequence.blocks = shared + pool.allocate(needed)
        sequence.computed = len(shared) * pool.block_size
        sequence.registered = len(shared)
        sequence.digest = digest
        if not sequence.announced:
            sequence.cached_tokens = min(sequence.computed, sequence.prompt_length)
            self._prompt_tokens += sequence.prompt_length
            self._cached_tokens += sequence.cached_tokens
        return True

    def _take_chunk(self, chunks: list[Chunk], sequence: Sequence, budget: int) -> int:
        count = min(sequence.pending, budget)
        chunks.append(_chunk(sequence, count))
        return count

    def _append(self, sequence: Sequence, token: int, alternatives: TokenAlternatives | None) -> TokenDelta:
        if token < 0:
            self.abort(sequence.id)
            return _nothing_allowed(sequence)
        try:
            sequence.append(token)
            whole = sequence.constraint is not None and sequence.constraint.finished
        except Exception:  # grammars are strangers', and the library that follows them is not ours
            log.exception("a constraint failed")
            self.abort(sequence.id)
            return TokenDelta(id=sequence.id, finish="error", error="the grammar of the answer could not be followed")
        self._generated_tokens += 1
        finish: TokenFinish | None = None
        if whole or token in sequence.request.stop_ids:
            finish = "stop"
        elif sequence.output_length >= sequence.request.max_tokens:
            finish = "length"
        if finish:
            self.running.remove(sequence)
            self._free(sequence)
        return TokenDelta(
            id=sequence.id,
            tokens=[token],
            logprobs=[] if alternatives is None else [alternatives],
            finish=finish,
            cached_tokens=sequence.cached_tokens,
        )

    def _finish_reading(self, sequence: Sequence) -> TokenDelta:
        """The end of a sequence of which nothing is generated."""
        self.running.remove(sequence)
        self._free(sequence)
        cached = sequence.cached_tokens
        if sequence.pool is None:
            return TokenDelta(id=sequence.id, finish="length", cached_tokens=cached)
        return TokenDelta(id=sequence.id, finish="stop", cached_tokens=cached, embedding=sequence.pool.result())

    @staticmethod
    def _scored(chunk: Chunk, scores: list[TokenAlternatives], delta: TokenDelta | None) -> TokenDelta:
        """What a step told of a sequence, with log probabilities of its prompt."""
        sequence = chunk.sequence
        sequence.scored = chunk.score.stop
        if delta is None:
            delta = TokenDelta(id=sequence.id, cached_tokens=sequence.cached_tokens)
        return msgspec.structs.replace(delta, prompt_logprobs=scores)

    def _register(self, sequence: Sequence) -> None:
        """Tell the prefix cache of the blocks that this step filled."""
        size = self.pool.block_size
        if not self.config.prefix_cache:
            return
        for index in range(sequence.registered, sequence.computed // size):
            sequence.digest = chain_digest(sequence.digest, sequence.tokens[index * size : (index + 1) * size])
            self.pool.register(sequence.blocks[index], sequence.digest)
            sequence.registered = index + 1

    def _free(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = 0
        sequence.registered = 0


def _chunk(sequence: Sequence, count: int) -> Chunk:
    """The next ``count`` tokens of a sequence."""
    last = count == sequence.pending
    if sequence.pool is not None:
        return Chunk(
            sequence, sequence.computed, count, False, sequence.pool.rows(count, first=not sequence.computed, last=last)
        )
    sample = last and not sequence.request.only_read
    return Chunk(sequence, sequence.computed, count, sample, score=sequence.to_score(count))


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank


def _nothing_allowed(sequence: Sequence) -> TokenDelta:
    """The end of a sequence that has no next token, and whose fault it is."""
    request, constraint = sequence.request, sequence.constraint
    if constraint is not None and constraint.error is not None:
        why, refused = f"the grammar of the answer went over a limit ({constraint.error})", True
    elif constraint is not None:
        why, refused = "the grammar of the answer allows only tokens that the request forbids", True
    elif sequence.output_length < request.min_tokens or request.sampling.logit_bias:
        why, refused = "min_tokens and logit_bias of the request forbid every token", True
    else:
        why, refused = "the model gave no number for any token", False
    message = f"no token is allowed at this position: {why}"
    return TokenDelta(id=sequence.id, finish="error", error=message, refused=refused)
