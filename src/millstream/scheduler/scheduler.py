"""Continuous batching: which tokens run in the next step, and what became of those that ran.

No I/O and no clock: `schedule` picks the work of one step, the caller runs it, `commit` takes the sampled tokens; both
are told what time it is. The rule, in order: every decoding sequence gets its one token, and those that were forced
behind it as far as half the budget goes; the rest goes to prompts, in the turns of `millstream.scheduler.policy`, and a
waiting sequence enters the batch at its turn if there is a place and if its blocks are free. A decode that finds no
block takes those of the sequence that is protected least, which is put back in the queue and computed again later.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from millstream.engine.protocol import (
    EngineStats,
    PauseReason,
    SequenceView,
    TokenAlternatives,
    TokenDelta,
    TokenRequest,
    WaitReason,
)
from millstream.scheduler.drafts import DRAFT_ROWS, LONGEST_DRAFT
from millstream.scheduler.outcome import Outcome, take
from millstream.scheduler.pace import LEAST_CHUNK, Pace
from millstream.scheduler.places import Places, SchedulerConfig
from millstream.scheduler.policy import QUANTUM, Turns
from millstream.scheduler.sequence import NO_POSITIONS, Constraint, Sequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_FAILURES = 8
"""Sequences that are tried in one step although there are too few blocks."""


class Chunk(msgspec.Struct, frozen=True):
    """Work of one sequence in one step: its tokens from ``start`` on, ``count`` of them. ``sample``: the last one's
    logits are drawn from. ``hidden``: so many of the last rows' hidden states are wanted. ``draft``: the last tokens of
    the chunk, which the sequence does not have yet; logits of the token before them and of each are then drawn from.
    ``score``: positions whose logits tell the log probability of the token that follows, which is known."""

    sequence: Sequence
    start: int
    count: int
    sample: bool
    hidden: int = 0
    draft: tuple[int, ...] = ()
    score: range = NO_POSITIONS

    @property
    def rows(self) -> int:
        """Number of its last rows that are sampled."""
        return 1 + len(self.draft) if self.sample else 0

    @property
    def tokens(self) -> list[int]:
        """What runs."""
        held = self.sequence.tokens[self.start : self.start + self.count - len(self.draft)]
        return [*held, *self.draft]


class Sampled(msgspec.Struct, frozen=True):
    """What a step drew: for each sampled row, in order, a token and, if asked for, its log probabilities; for
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
        self._places = Places(config)
        self._pace = Pace(config.step_seconds, config.step_tokens)
        self._begun = 0.0
        self._arrivals = 0
        self._steps = 0
        self._generated_tokens = 0
        self._draft_tokens = 0
        self._accepted_tokens = 0
        self._forced_tokens = 0

    def add(self, request: TokenRequest, constraint: Constraint | None = None, *, now: float = 0.0) -> None:
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
        if self._places.taken >= self.config.max_sequences + self.config.max_waiting:
            raise QueueFull
        self._arrivals += 1
        self._places.enqueue(Sequence(request, self._arrivals, constraint, now))

    def abort(self, request_id: str) -> None:
        """Drop a sequence and free its blocks; unknown or finished ids are ignored."""
        self._places.abort(request_id)

    def pause(self, request_id: str, reason: PauseReason) -> None:
        """A sequence leaves the batch until `resume` for each reason. Unknown ids are ignored."""
        self._places.pause(request_id, reason)

    def resume(self, request_id: str, reason: PauseReason) -> None:
        """A sequence that rests for no other reason goes on as soon as it has blocks again."""
        self._places.resume(request_id, reason)

    def reprioritise(self, request_id: str, priority: int, *, now: float = 0.0) -> None:
        """A sequence has another class from the next step on. Unknown ids are ignored."""
        self._places.reprioritise(request_id, priority, now)

    @property
    def has_work(self) -> bool:
        return bool(self._places.running or self._places.waiting)

    def schedule(self, now: float = 0.0) -> list[Chunk]:
        """The chunks of the next step; empty if there is nothing to do. ``now``: seconds of any one clock."""
        self._begun = now
        self._places.make_room()
        chunks = self._schedule_decodes()
        if len(chunks) == len(self._places.running) and not self._places.waiting:
            return chunks
        decoding = {chunk.sequence.id for chunk in chunks}
        prefilling = [sequence for sequence in self._places.running if sequence.id not in decoding]
        if prefilling or self._places.waiting:
            units = self._pace.units if chunks else self.config.prompt_units
            room = self.config.step_tokens - sum(chunk.count for chunk in chunks)
            chunks += self._schedule_prompts(prefilling, max(units - self._units(chunks), QUANTUM), room, now)
        return chunks

    def _units(self, chunks: list[Chunk]) -> float:
        """What chunks cost, about."""
        return sum(chunk.count * self.config.token_cost.at(chunk.start) for chunk in chunks)

    def commit(self, chunks: list[Chunk], sampled: Sampled, now: float = 0.0) -> list[TokenDelta]:
        """Record a step that ran; returns what is new for each sequence."""
        self._steps += 1
        if not any(chunk.draft for chunk in chunks):  # whose many sampled rows cost what units do not tell
            self._pace.ran(self._units(chunks), now - self._begun)
        deltas: list[TokenDelta] = []
        row = 0
        hidden, scores = iter(sampled.hidden), iter(sampled.scores)
        for chunk in chunks:
            sequence = chunk.sequence
            outcome = None
            if chunk.sample:
                outcome = take(sequence, sampled.tokens[row : row + chunk.rows], chunk.draft)
            held = len(chunk.draft) - max(outcome.taken - 1, 0) if outcome else 0
            sequence.computed = chunk.start + chunk.count - held
            self._places.charge(sequence)
            self._places.prefixes.computed(sequence)
            delta = None
            if chunk.hidden and sequence.pool is not None:
                sequence.pool.add(next(hidden))
            if sequence.request.only_read and not sequence.pending:
                delta = self._finish_reading(sequence)
            elif outcome is not None:
                delta = self._sampled(chunk, outcome, sampled.logprobs[row : row + outcome.taken])
            elif not sequence.announced:
                delta = TokenDelta(id=sequence.id, cached_tokens=sequence.cached_tokens)
            row += chunk.rows
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
        places = self._places
        return EngineStats(
            running=len(places.running),
            waiting=len(places.waiting) + len(places.paused),
            waits=places.waits(),
            kv_blocks_used=places.pool.used,
            kv_blocks_total=places.pool.count,
            steps=self._steps,
            prompt_tokens=places.prompt_tokens,
            generated_tokens=self._generated_tokens,
            cached_tokens=places.cached_tokens,
            preemptions=places.preemptions,
            draft_tokens=self._draft_tokens,
            accepted_tokens=self._accepted_tokens,
            forced_tokens=self._forced_tokens,
        )

    def sequences(self) -> list[SequenceView]:
        """Where each sequence is."""
        return [sequence.view for sequence in self._places.everyone]

    def _schedule_decodes(self) -> list[Chunk]:
        decoding = [sequence for sequence in self._places.running if sequence.decoding]
        prompts = bool(self._places.waiting) or len(decoding) < len(self._places.running)
        spare = 0 if prompts else self._draft_room(decoding)
        drafts = _drafts(decoding, spare) if spare else {}
        step_tokens = self.config.step_tokens
        most = min(max(len(decoding), int(self._pace.units) // 2), step_tokens) if prompts else step_tokens
        others = min(len(decoding), most)
        chunks: list[Chunk] = []
        for sequence in decoding:
            if not sequence.blocks:  # another one has taken them
                continue
            if most < 1 or not self._places.grow(sequence):
                continue
            others = max(others - 1, 0)
            count = min(sequence.pending, max(most - others, 1))  # each of the others gets one at least
            draft = self._fitting(sequence, drafts.get(sequence.id, ()), min(spare, most - others - count))
            spare -= len(draft)
            chunks.append(_chunk(sequence, count, draft))
            most -= chunks[-1].count
        return chunks

    def _draft_room(self, decoding: list[Sequence]) -> int:
        """Tokens that these sequences may draft in a step. While there are prompts to be computed there are none: a
        step should be short then, and its other tokens are certain to be of use.

        Drafts make a step longer for all sequences in it, so if these are of several tenants, half as many rows are
        added at most. And whoever comes during a step should not wait for it longer than for one of prompts, unless
        one sequence alone drafts.
        """
        count = len(decoding)
        if not count:
            return 0
        rows = min(DRAFT_ROWS, self.config.step_tokens) - count
        if any(sequence.tenant != decoding[0].tenant for sequence in decoding):
            rows = min(rows, max(count // 2, 1))
        deepest = max(sequence.computed for sequence in decoding)
        fitting = int(self.config.prompt_units / self.config.token_cost.at(deepest))
        return max(0, min(rows, max(LONGEST_DRAFT, fitting)))

    def _fitting(self, sequence: Sequence, draft: SequenceOf[int], most: int) -> tuple[int, ...]:
        """The first ``most`` tokens of a draft, or what the answer may still have, if there are blocks for them."""
        most = min(most, sequence.request.max_tokens - sequence.output_length - 1)
        draft = draft[: max(most, 0)]
        return tuple(draft) if draft and self._places.extend(sequence, len(draft)) else ()

    def _schedule_prompts(self, prefilling: list[Sequence], budget: float, room: int, now: float) -> list[Chunk]:
        """Share the budget of units, and at most ``room`` tokens, between the prompts in the batch and those that can
        be admitted to it.

        A step that brings somebody's first token is not made longer for prompts that get none from it.
        """
        places = self._places
        cost = self.config.token_cost
        best = min(sequence.priority for sequence in (*places.running, *places.waiting))
        ageing = self.config.fairness.ageing_seconds
        wanting = (*prefilling, *places.candidates(now))
        turns = Turns(wanting, places.shares, now, best=best, ageing_seconds=ageing)
        granted: dict[str, tuple[Sequence, int]] = {}
        failures = 0
        ending = False
        while budget > 0 and room > 0 and failures < _MOST_FAILURES and (sequence := turns.next()):
            if not sequence.blocks:
                sequence.wait = places.admit(sequence, turns.level)
                if sequence.wait is not None:
                    turns.drop()
                    failures += sequence.wait == "kv_cache"
                    continue
            had = granted.get(sequence.id, (sequence, 0))[1]
            unit = cost.at(sequence.computed + had)
            whole = sequence.pending - had
            if ending and whole * unit > budget:
                sequence.wait = None if had else "step_budget"
                turns.drop()
                continue
            least = LEAST_CHUNK if turns.alone and not granted else 1
            fitting = int((budget if turns.alone else min(QUANTUM, budget)) / unit)
            count = min(whole, max(fitting, least), room)
            granted[sequence.id] = (sequence, had + count)
            budget -= count * unit
            room -= count
            sequence.wait = None
            ending = ending or count == whole
            turns.grant(count, count * unit, done=count == whole)
        left: WaitReason = "kv_cache" if budget > 0 < room else "step_budget"
        for sequence in turns.left():
            if sequence.id not in granted:
                sequence.wait = left
        return [_chunk(sequence, count) for sequence, count in granted.values()]

    def _sampled(self, chunk: Chunk, outcome: Outcome, logprobs: list[TokenAlternatives | None]) -> TokenDelta:
        """What is new for a sequence that was sampled from; one that has ended leaves."""
        sequence, drafted = chunk.sequence, len(chunk.draft)
        new = sequence.tokens[len(sequence.tokens) - outcome.appended :]
        accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(new, chunk.draft, strict=False)))
        self._generated_tokens += outcome.appended
        self._forced_tokens += outcome.forced
        self._draft_tokens += drafted
        self._accepted_tokens += accepted
        self._places.shares.charge(sequence.tenant, output=outcome.appended)
        if outcome.finish is not None:
            self._places.leave(sequence)
        return TokenDelta(
            id=sequence.id,
            tokens=new,
            logprobs=[entry for entry in logprobs if entry is not None],
            finish=outcome.finish,
            cached_tokens=sequence.cached_tokens,
            error=outcome.error,
            refused=outcome.refused,
            drafted=drafted,
            accepted=accepted,
        )

    def _finish_reading(self, sequence: Sequence) -> TokenDelta:
        """The end of a sequence of which nothing is generated."""
        self._places.leave(sequence)
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


def _drafts(decoding: list[Sequence], room: int) -> dict[str, list[int]]:
    """What each sequence drafts, by its id: an equal share of ``room`` for those that have something to draft."""
    most = min(room, LONGEST_DRAFT)
    found = {sequence.id: draft for sequence in decoding if (draft := sequence.draft(most, len(decoding)))}
    share = max(room // len(found), 1) if found else 0
    return {name: draft[:share] for name, draft in found.items()}


def _chunk(sequence: Sequence, count: int, draft: tuple[int, ...] = ()) -> Chunk:
    """The next ``count`` tokens of a sequence, and a draft of those that follow."""
    start, last = sequence.computed, count == sequence.pending
    if sequence.pool is not None:
        hidden = sequence.pool.rows(count, first=not start, last=last)
        return Chunk(sequence, start, count, False, hidden)
    sample = last and not sequence.request.only_read
    return Chunk(sequence, start, count + len(draft), sample, draft=draft, score=sequence.to_score(count))
