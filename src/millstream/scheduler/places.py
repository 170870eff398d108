"""Who is in the batch, who waits, and the blocks that they hold."""

from __future__ import annotations

from bisect import insort
from collections import Counter

import msgspec

from millstream.engine.protocol import PauseReason, WaitReason, told_pause
from millstream.scheduler.blocks import BlockPool
from millstream.scheduler.pace import TokenCost
from millstream.scheduler.policy import Fairness, Shares
from millstream.scheduler.prefixes import Prefixes
from millstream.scheduler.sequence import Sequence


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes: ``step_tokens`` bounds the tokens of one step, ``max_sequences`` the batch, ``max_waiting`` the queue.
    ``prompt_units`` bounds what a step may hold of prompts (see `millstream.scheduler.pace`), by ``token_cost``.
    ``step_seconds``: steps with prompts in which others decode are kept about as short as this."""

    kv_blocks: int
    block_size: int
    step_tokens: int = 256
    max_sequences: int = 64
    max_waiting: int = 256
    prefix_cache: bool = True
    prompt_units: int = 96
    token_cost: TokenCost = TokenCost()
    step_seconds: float = 0.1
    fairness: Fairness = Fairness()


class Places:
    """Sequences between their arrival and their end. ``running`` and ``waiting`` are ordered by protection, the least
    protected last."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self.pool = BlockPool(config.kv_blocks, config.block_size)
        self.prefixes = Prefixes(self.pool, enabled=config.prefix_cache)
        self.shares = Shares(config.fairness.head_start)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.paused: dict[str, Sequence] = {}
        """Sequences that rest; they hold no blocks."""
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.preemptions = 0

    @property
    def taken(self) -> int:
        """Sequences of any kind."""
        return len(self.running) + len(self.waiting) + len(self.paused)

    @property
    def everyone(self) -> tuple[Sequence, ...]:
        return (*self.running, *self.waiting, *self.paused.values())

    def waits(self) -> dict[str, int]:
        """Sequences that do not advance, by the reason; those in the batch that got no tokens are among them."""
        reasons: list[str] = [sequence.wait for sequence in self.everyone if sequence.wait is not None]
        return dict(Counter(reasons)) if reasons else {}

    def abort(self, request_id: str) -> None:
        """Drop a sequence and free its blocks; unknown or finished ids are ignored."""
        if self.take_out(request_id) is None:
            self.paused.pop(request_id, None)

    def pause(self, request_id: str, reason: PauseReason) -> None:
        """A sequence leaves the batch until `resume` for each reason. Its blocks stay in the prefix cache as long as
        nobody needs them. Unknown ids are ignored."""
        if sequence := self.paused.get(request_id) or self.take_out(request_id):
            self.paused[request_id] = sequence
            sequence.pauses.add(reason)
            sequence.wait = told_pause(sequence.pauses)

    def resume(self, request_id: str, reason: PauseReason) -> None:
        """A sequence that rests for no other reason goes on as soon as it has blocks again."""
        if sequence := self.paused.get(request_id):
            sequence.pauses.discard(reason)
            if sequence.pauses:
                sequence.wait = told_pause(sequence.pauses)
            else:
                self.enqueue(self.paused.pop(request_id))

    def reprioritise(self, request_id: str, priority: int, now: float) -> None:
        """Put a sequence into another class. What it has risen by waiting stays, unless the class is a worse one: then
        it would be back where it was at once. Unknown ids are ignored."""
        for sequence in self.everyone:
            if sequence.id == request_id:
                if priority > sequence.priority:
                    sequence.since = now
                sequence.request = msgspec.structs.replace(sequence.request, priority=priority)
                sequence.standing = priority
                self.running.sort(key=_rank)
                self.waiting.sort(key=_rank)

    def enqueue(self, sequence: Sequence) -> None:
        """Let a sequence without blocks wait for a place."""
        waiting = (other.tenant for other in (*self.waiting, *self.running) if not (other.decoding and other.blocks))
        self.shares.join(sequence.tenant, waiting)
        sequence.wait = None
        insort(self.waiting, sequence, key=_rank)

    def candidates(self, now: float) -> list[Sequence]:
        """Waiting sequences that may be admitted. One that has found no blocks for too long is passed only by tenants
        that were served less than its own."""
        patience = self._config.fairness.patience_seconds
        blocked = (s for s in self.waiting if s.wait == "kv_cache" and now - s.since >= patience)
        starving = min(blocked, key=_order, default=None)
        if starving is None:
            return self.waiting
        served = self.shares.served(starving.tenant)
        passing = [s for s in self.waiting if s is starving or self.shares.served(s.tenant) < served]
        for sequence in set(self.waiting) - set(passing):
            sequence.wait = "kv_cache"
        return passing

    def make_room(self) -> None:
        """Let the best of those that found no place or no blocks have what a sequence of a worse class holds."""
        if not (self.waiting and self.running):
            return
        first, last = self.waiting[0], self.running[-1]
        if first.wait in ("kv_cache", "max_sequences") and first.standing < last.standing:
            self.preempt(last)

    def admit(self, sequence: Sequence, level: int) -> WaitReason | None:
        """Give a waiting sequence a place in the batch, and blocks for all tokens it has, sharing those that the prefix
        cache knows; or say what is missing. ``level``: the class in which it is admitted.

        One spare block for each running sequence is left, so that an admission does not cause a preemption at once.
        """
        if len(self.running) >= self._config.max_sequences:
            return "max_sequences"
        pool = self.pool
        shared = self.prefixes.cached(sequence)
        leader = self.prefixes.leader(sequence, len(shared))
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
        self.prefixes.begin(sequence)
        if sequence.pool is not None:
            sequence.pool.reset()
        self.waiting.remove(sequence)
        sequence.standing = level
        insort(self.running, sequence, key=_rank)
        if not sequence.announced:
            sequence.cached_tokens = min(sequence.computed, sequence.prompt_length)
            self.prompt_tokens += sequence.prompt_length
            self.cached_tokens += sequence.cached_tokens
        return None

    def grow(self, sequence: Sequence) -> bool:
        """Make room for the next token; False if the sequence itself had to leave the batch."""
        needed = self.pool.blocks_for(len(sequence.tokens)) - len(sequence.blocks)
        while self.pool.available < needed:
            victim = self.running[-1]
            self.preempt(victim)
            if victim is sequence:
                return False
        if needed > 0:
            sequence.blocks += self.pool.allocate(needed)
        return True

    def preempt(self, sequence: Sequence) -> None:
        """Put a sequence of the batch back into the queue."""
        self.preemptions += 1
        self.running.remove(sequence)
        self.free(sequence)
        sequence.standing = sequence.priority
        self.enqueue(sequence)

    def take_out(self, request_id: str) -> Sequence | None:
        """Take a sequence out of batch or queue and free its blocks; None if it is in neither."""
        for queue in (self.running, self.waiting):
            for index, sequence in enumerate(queue):
                if sequence.id == request_id:
                    del queue[index]
                    self.free(sequence)
                    sequence.standing = sequence.priority
                    return sequence
        return None

    def leave(self, sequence: Sequence) -> None:
        """A sequence of the batch has ended."""
        self.running.remove(sequence)
        self.free(sequence)

    def extend(self, sequence: Sequence, tokens: int) -> bool:
        """Blocks for so many tokens beyond the next, if nobody has to leave for them."""
        needed = self.pool.blocks_for(len(sequence.tokens) + tokens) - len(sequence.blocks)
        if needed > 0 and needed > self.pool.available - len(self.running):
            return False
        sequence.blocks += self.pool.allocate(needed)
        return True

    def charge(self, sequence: Sequence) -> None:
        """Let the tenant pay for what was computed for the first time."""
        new = sequence.computed - max(sequence.charged, sequence.cached_tokens)
        if new > 0 and sequence.charged < sequence.prompt_length:
            self.shares.charge(sequence.tenant, prompt=new)
        sequence.charged = max(sequence.charged, sequence.computed)

    def free(self, sequence: Sequence) -> None:
        """Take a sequence's blocks. What they hold stays in the prefix cache until they are needed."""
        self.prefixes.leave(sequence)
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = 0
        sequence.registered = 0


def _order(sequence: Sequence) -> int:
    return sequence.order


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
