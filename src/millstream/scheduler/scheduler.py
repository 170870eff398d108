"""Continuous batching: which tokens run in the next step, and what became of those that ran.

No I/O and no clock: `schedule` picks the work of one step, the caller runs it, `commit` takes the sampled tokens; both
are told what time it is. The rule, in order: every decoding sequence gets its one token; the rest of the budget goes
to prompts, in the turns of `millstream.scheduler.policy`, and a waiting sequence enters the batch at its turn if there
is a place and if its blocks are free. A decode that finds no block takes those of the sequence that is protected least,
which is put back in the queue and computed again later.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from millstream.engine.protocol import EngineStats, TokenAlternatives, TokenDelta, TokenFinish, TokenRequest
from millstream.scheduler.blocks import BlockPool
from millstream.scheduler.pace import Pace
from millstream.scheduler.policy import QUANTUM, Fairness, Shares, Turns, WaitReason
from millstream.scheduler.pooling import Pool
from millstream.scheduler.prefixes import Prefixes
from millstream.scheduler.sequence import Constraint, Sequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

_MOST_FAILURES = 8
"""Sequences that are tried in one step although there are too few blocks."""


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes: ``step_tokens`` bounds the tokens of one step, ``max_sequences`` the batch, ``max_waiting`` the queue.
    ``step_seconds``: steps with prompts are kept about as short as this."""

    kv_blocks: int
    block_size: int
    step_tokens: int = 256
    max_sequences: int = 64
    max_waiting: int = 256
    prefix_cache: bool = True
    step_seconds: float = 0.1
    fairness: Fairness = Fairness()


class Chunk(msgspec.Struct, frozen=True):
    """Work of one sequence in one step: its tokens from ``start`` on, ``count`` of them. ``sample``: the last one's
    logits are drawn from. ``hidden``: so many of the last rows' hidden states are wanted."""

    sequence: Sequence
    start: int
    count: int
    sample: bool
    hidden: int = 0


class Sampled(msgspec.Struct, frozen=True):
    """What a step drew: for each chunk with ``sample``, in order, a token and, if asked for, its log probabilities; for
    each chunk with ``hidden``, in order, these rows [hidden, hidden size]."""

    tokens: list[int]
    logprobs: list[TokenAlternatives | None]
    hidden: list[NDArray[np.float32]] = []


class QueueFull(Exception):
    """The queue holds as many sequences as it may."""


class Scheduler:
    """Owns every sequence between `add` and its last delta."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.pool = BlockPool(config.kv_blocks, config.block_size)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.paused: dict[str, Sequence] = {}
        """Sequences whose readers have stopped reading; they hold no blocks, but the prefix cache keeps theirs."""
        self._shares = Shares(config.fairness.head_start)
        self._pace = Pace(config.step_seconds, config.step_tokens)
        self._prefixes = Prefixes(self.pool, enabled=config.prefix_cache)
        self._begun = 0.0
        self._arrivals = 0
        self._steps = 0
        self._prompt_tokens = 0
        self._generated_tokens = 0
        self._cached_tokens = 0
        self._preemptions = 0

    def add(self, request: TokenRequest, constraint: Constraint | None = None, *, now: float = 0.0) -> None:
        """Queue a request. ``constraint`` has been advanced by the request's ``output``.

        Raises:
            ValueError: it can never fit, or has nothing to run.
            QueueFull: every place in the batch and in the queue is taken.
        """
        longest = len(request.prompt) + request.max_tokens
        capacity = self.config.kv_blocks * self.config.block_size
        if not request.prompt or (request.pooling is None and request.max_tokens <= len(request.output)):
            raise ValueError("a request needs at least one prompt token and one token to generate")
        if longest > capacity:
            raise ValueError(f"the request may grow to {longest} tokens, but the KV cache holds {capacity}")
        if self._open >= self.config.max_sequences + self.config.max_waiting:
            raise QueueFull
        self._arrivals += 1
        self._enqueue(Sequence(request, self._arrivals, constraint, now))

    def abort(self, request_id: str) -> None:
        """Drop a sequence and free its blocks; unknown or finished ids are ignored."""
        if self._take_out(request_id) is None:
            self.paused.pop(request_id, None)

    def pause(self, request_id: str) -> None:
        """Nobody reads a sequence's tokens: it leaves the batch until `resume`. Its blocks stay in the prefix cache as
        long as nobody needs them. Unknown ids are ignored."""
        if sequence := self._take_out(request_id):
            sequence.wait = "paused_reader"
            self.paused[request_id] = sequence

    def resume(self, request_id: str) -> None:
        """A paused sequence goes on as soon as it has blocks again."""
        if sequence := self.paused.pop(request_id, None):
            self._enqueue(sequence)

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def _open(self) -> int:
        return len(self.running) + len(self.waiting) + len(self.paused)

    def schedule(self, now: float = 0.0) -> list[Chunk]:
        """The chunks of the next step; empty if there is nothing to do. ``now``: seconds of any one clock."""
        self._begun = now
        chunks = self._schedule_decodes()
        decoding = {chunk.sequence.id for chunk in chunks}
        prefilling = [sequence for sequence in self.running if sequence.id not in decoding]
        if prefilling or self.waiting:
            chunks += self._schedule_prompts(prefilling, self._pace.tokens - len(chunks), now)
        return chunks

    def commit(self, chunks: list[Chunk], sampled: Sampled, now: float = 0.0) -> list[TokenDelta]:
        """Record a step that ran; returns what is new for each sequence."""
        self._steps += 1
        self._pace.ran(sum(chunk.count for chunk in chunks), now - self._begun)
        deltas: list[TokenDelta] = []
        row = 0
        hidden = iter(sampled.hidden)
        for chunk in chunks:
            sequence = chunk.sequence
            sequence.computed = chunk.start + chunk.count
            self._charge(sequence)
            self._prefixes.computed(sequence)
            delta = None
            if chunk.hidden and sequence.pool is not None:
                sequence.pool.add(next(hidden))
            if sequence.pool is not None and not sequence.pending:
                delta = self._finish_pooling(sequence, sequence.pool)
            elif chunk.sample:
                delta = self._append(sequence, sampled.tokens[row], sampled.logprobs[row])
                row += 1
            elif not sequence.announced:
                delta = TokenDelta(id=sequence.id, cached_tokens=sequence.cached_tokens)
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
            waiting=len(self.waiting) + len(self.paused),
            waits=self.waits(),
            kv_blocks_used=self.pool.used,
            kv_blocks_total=self.pool.count,
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated_tokens,
            cached_tokens=self._cached_tokens,
            preemptions=self._preemptions,
        )

    def waits(self) -> dict[str, int]:
        """Sequences that do not advance, by the reason; those in the batch that got no tokens are among them."""
        everyone = (*self.running, *self.waiting, *self.paused.values())
        return dict(Counter(str(sequence.wait) for sequence in everyone if sequence.wait is not None))

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

    def _schedule_prompts(self, prefilling: list[Sequence], budget: int, now: float) -> list[Chunk]:
        """Share the budget between the prompts in the batch and those that can be admitted to it."""
        best = min(sequence.priority for sequence in (*self.running, *self.waiting))
        fairness = self.config.fairness
        turns = Turns(
            (*prefilling, *self._candidates(now)), self._shares, now, best=best, ageing_seconds=fairness.ageing_seconds
        )
        granted: dict[str, tuple[Sequence, int]] = {}
        failures = 0
        while budget > 0 and failures < _MOST_FAILURES and (sequence := turns.next()):
            if not sequence.blocks:
                sequence.wait = self._admit(sequence)
                if sequence.wait is not None:
                    turns.drop()
                    failures += sequence.wait == "kv_cache"
                    continue
            had = granted.get(sequence.id, (sequence, 0))[1]
            most = budget if turns.alone else min(QUANTUM, budget)
            count = min(sequence.pending - had, most)
            granted[sequence.id] = (sequence, had + count)
            budget -= count
            sequence.wait = None
            turns.grant(count, done=had + count == sequence.pending)
        left: WaitReason = "kv_cache" if budget > 0 else "step_budget"
        for sequence in turns.left():
            if sequence.id not in granted:
                sequence.wait = left
        return [_chunk(sequence, count) for sequence, count in granted.values()]

    def _candidates(self, now: float) -> list[Sequence]:
        """Waiting sequences that may be admitted. One that has found no blocks for too long is passed only by tenants
        that were served less than its own."""
        patience = self.config.fairness.patience_seconds
        blocked = (s for s in self.waiting if s.wait == "kv_cache" and now - s.since >= patience)
        starving = min(blocked, key=_order, default=None)
        if starving is None:
            return self.waiting
        served = self._shares.served(starving.tenant)
        passing = [s for s in self.waiting if s is starving or self._shares.served(s.tenant) < served]
        for sequence in set(self.waiting) - set(passing):
            sequence.wait = "kv_cache"
        return passing

    def _admit(self, sequence: Sequence) -> WaitReason | None:
        """Give a waiting sequence a place in the batch, and blocks for all tokens it has, sharing those that the prefix
        cache knows; or say what is missing.

        One spare block for each running sequence is left, so that an admission does not cause a preemption at once.
        """
        if len(self.running) >= self.config.max_sequences:
            return "max_sequences"
        pool = self.pool
        shared = self._prefixes.cached(sequence)
        leader = self._prefixes.leader(sequence, len(shared))
        if leader is not None and leader.priority <= sequence.priority:
            return "shared_prefix"
        needed = pool.blocks_for(len(sequence.tokens)) - len(shared)
        spare = len(self.running)
        if pool.available < needed + (len(shared) - pool.held(shared)) + spare:
            return "kv_cache"
        pool.hold(shared)
        sequence.blocks = shared + pool.allocate(needed)
        sequence.computed = len(shared) * pool.block_size
        sequence.registered = len(shared)
        self._prefixes.begin(sequence)
        if sequence.pool is not None:
            sequence.pool.reset()
        self.waiting.remove(sequence)
        insort(self.running, sequence, key=_rank)
        if not sequence.announced:
            sequence.cached_tokens = min(sequence.computed, sequence.prompt_length)
            self._prompt_tokens += sequence.prompt_length
            self._cached_tokens += sequence.cached_tokens
        return None

    def _enqueue(self, sequence: Sequence) -> None:
        waiting = (other.tenant for other in (*self.waiting, *self.running) if other.pending > 1 or not other.blocks)
        self._shares.join(sequence.tenant, waiting)
        insort(self.waiting, sequence, key=_rank)

    def _preempt(self, sequence: Sequence) -> None:
        self._preemptions += 1
        self.running.remove(sequence)
        self._free(sequence)
        self._enqueue(sequence)

    def _take_out(self, request_id: str) -> Sequence | None:
        """Take a sequence out of batch or queue and free its blocks; None if it is in neither."""
        for queue in (self.running, self.waiting):
            for index, sequence in enumerate(queue):
                if sequence.id == request_id:
                    del queue[index]
                    self._free(sequence)
                    return sequence
        return None

    def _charge(self, sequence: Sequence) -> None:
        """Let the tenant pay for what was computed for the first time."""
        new = sequence.computed - max(sequence.charged, sequence.cached_tokens)
        if new > 0 and sequence.charged < sequence.prompt_length:
            self._shares.charge(sequence.tenant, prompt=new)
        sequence.charged = max(sequence.charged, sequence.computed)

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
        self._shares.charge(sequence.tenant, output=1)
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

    def _finish_pooling(self, sequence: Sequence, pool: Pool) -> TokenDelta:
        self.running.remove(sequence)
        self._free(sequence)
        embedding, cached = pool.result(), sequence.cached_tokens
        return TokenDelta(id=sequence.id, finish="stop", cached_tokens=cached, embedding=embedding)

    def _free(self, sequence: Sequence) -> None:
        self._prefixes.leave(sequence)
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = 0
        sequence.registered = 0


def _chunk(sequence: Sequence, count: int) -> Chunk:
    """The next ``count`` tokens of a sequence."""
    last = count == sequence.pending
    if sequence.pool is None:
        return Chunk(sequence, sequence.computed, count, last)
    return Chunk(sequence, sequence.computed, count, False, sequence.pool.rows(count, last=last))


def _order(sequence: Sequence) -> int:
    return sequence.order


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
