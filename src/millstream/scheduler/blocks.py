"""KV blocks with reference counts, and the prefix cache over them.

A block holds the keys and values of ``block_size`` consecutive positions. A full block is named by a digest of its
tokens, chained over all tokens before it and rooted in the tenant, so equal digests mean equal contents and no tenant
can hit another's blocks. Blocks that nobody holds keep their contents until they are needed, least recently used first.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from hashlib import blake2b


def root_digest(tenant: str) -> bytes:
    """The start of a tenant's chains."""
    return blake2b(b"tenant\0" + tenant.encode(), digest_size=16).digest()


def chain_digest(parent: bytes, tokens: SequenceOf[int]) -> bytes:
    """Name of a block that follows ``parent`` and holds ``tokens``."""
    return blake2b(parent + array("i", tokens).tobytes(), digest_size=16).digest()


class BlockPool:
    """Hands out block numbers 0 to ``count`` - 1."""

    def __init__(self, count: int, block_size: int) -> None:
        self.count = count
        self.block_size = block_size
        self._references = [0] * count
        self._digests: list[bytes | None] = [None] * count
        self._blank = list(range(count - 1, -1, -1))
        self._reusable: OrderedDict[int, None] = OrderedDict()
        self._cache: dict[bytes, int] = {}

    @property
    def available(self) -> int:
        """Blocks that `allocate` can hand out."""
        return len(self._blank) + len(self._reusable)

    @property
    def used(self) -> int:
        """Blocks held by at least one sequence."""
        return self.count - self.available

    def blocks_for(self, tokens: int) -> int:
        """Blocks that ``tokens`` positions need."""
        return -(-tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` blocks of undefined contents. The caller has checked `available`."""
        blocks = []
        for _ in range(count):
            if self._blank:
                block = self._blank.pop()
            else:
                block, _ = self._reusable.popitem(last=False)
                self._forget(block)
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def release(self, blocks: list[int]) -> None:
        """Give back one reference to each block, last block first so that a chain's end is evicted before its start."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                if self._digests[block] is None:
                    self._blank.append(block)
                else:
                    self._reusable[block] = None

    def match(self, digests: Iterable[bytes]) -> list[int]:
        """Blocks of the longest cached run that a chain of digests begins with. Takes no reference: `hold` does."""
        blocks: list[int] = []
        for digest in digests:
            block = self._cache.get(digest)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def held(self, blocks: list[int]) -> int:
        """How many of these blocks are in use by some sequence (and so are not counted in `available`)."""
        return sum(1 for block in blocks if self._references[block])

    def hold(self, blocks: list[int]) -> None:
        """Add one reference to each block."""
        for block in blocks:
            if self._references[block] == 0:
                del self._reusable[block]
            self._references[block] += 1

    def register(self, block: int, digest: bytes) -> None:
        """Make a full block known to the prefix cache, unless another block already has the same contents."""
        if digest not in self._cache and self._digests[block] is None:
            self._cache[digest] = block
            self._digests[block] = digest

    def _forget(self, block: int) -> None:
        digest = self._digests[block]
        if digest is not None:
            del self._cache[digest]
            self._digests[block] = None
