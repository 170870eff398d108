"""Prefixes that sequences share: which blocks of a prompt are there, or are being computed by another sequence."""

from __future__ import annotations

from millstream.scheduler.blocks import BlockPool
from millstream.scheduler.sequence import Sequence


class Prefixes:
    """The prefix cache as sequences see it. ``enabled`` false: every sequence computes all of its tokens."""

    def __init__(self, pool: BlockPool, *, enabled: bool) -> None:
        self._pool = pool
        self._enabled = enabled
        self._computing: dict[bytes, Sequence] = {}
        """Blocks that a sequence of the batch is about to fill, by their digests."""

    def cached(self, sequence: Sequence) -> list[int]:
        """Blocks that a sequence begins with and need not compute. At least one token is left, to have logits."""
        return self._pool.match(self._chain(sequence))

    def leader(self, sequence: Sequence, cached: int) -> Sequence | None:
        """Who computes the block that follows the first ``cached`` ones of this sequence at the moment."""
        chain = self._chain(sequence)
        return self._computing.get(chain[cached]) if cached < len(chain) else None

    def begin(self, sequence: Sequence) -> None:
        """A sequence was given blocks and computes those after ``registered`` from now on."""
        for digest in self._chain(sequence)[sequence.registered :]:
            self._computing.setdefault(digest, sequence)

    def computed(self, sequence: Sequence) -> None:
        """Make the blocks known that the last step filled."""
        size = self._pool.block_size
        full = sequence.computed // size
        if not self._enabled or full <= sequence.registered:
            return
        digests = sequence.digests(full, size)
        for index in range(sequence.registered, full):
            self._pool.register(sequence.blocks[index], digests[index])
            self._computing.pop(digests[index], None)
        sequence.registered = full

    def leave(self, sequence: Sequence) -> None:
        """A sequence loses its blocks."""
        for digest in sequence.chain[sequence.registered :]:
            if self._computing.get(digest) is sequence:
                del self._computing[digest]

    def _chain(self, sequence: Sequence) -> list[bytes]:
        if not self._enabled:
            return []
        size = self._pool.block_size
        return sequence.digests(sequence.cacheable // size, size)
