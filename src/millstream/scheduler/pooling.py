"""Pooling: the hidden states of a prompt, chunk by chunk, become one vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from millstream.engine.protocol import Pooling


class Pool:
    """Takes the rows of every chunk in order of position.

    The mean is summed in float64 row by row, so its bits do not depend on how the prompt was cut.
    """

    def __init__(self, kind: Pooling) -> None:
        self.kind = kind
        self._sum: NDArray[np.float64] | None = None
        self._count = 0

    def reset(self) -> None:
        """The sequence is computed again from its beginning."""
        self._sum = None
        self._count = 0

    def rows(self, count: int, *, first: bool, last: bool) -> int:
        """How many of a chunk's ``count`` trailing rows are needed; ``first`` and ``last``: of the prompt's chunks."""
        if self.kind == "last":
            return int(last)
        return count if first or self.kind == "mean" else 0

    def add(self, hidden: NDArray[np.float32]) -> None:
        """Hidden states [rows, hidden size]."""
        if self.kind == "cls":
            hidden = hidden[:1]
        for row in hidden:
            if self._sum is None:
                self._sum = row.astype("f8")
            else:
                self._sum += row
        self._count += len(hidden)

    def result(self) -> bytes:
        """The vector, little-endian float32. Raises ValueError if nothing was added."""
        if self._sum is None:
            raise ValueError("there are no hidden states to pool")
        return (self._sum / self._count).astype("<f4").tobytes()
