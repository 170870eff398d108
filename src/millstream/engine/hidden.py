"""Hidden states of prompts: rows of a step that become embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.engine.arrays import int32s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.scheduler.scheduler import Chunk


class HiddenRows:
    """The trailing rows of each chunk of one step whose hidden states are wanted, and where the step writes them."""

    def __init__(self, chunks: list[Chunk], size: int) -> None:
        """``chunks``: all of the step, in order; at least one wants rows. ``size``: of a hidden state."""
        rows: list[int] = []
        end = 0
        for chunk in chunks:
            end += chunk.count
            rows += range(end - chunk.hidden, end)
        self._counts = [chunk.hidden for chunk in chunks if chunk.hidden]
        self.rows = int32s(rows)
        self.states = np.empty((len(rows), size), np.float32)

    def results(self) -> list[NDArray[np.float32]]:
        """What the step wrote, for each chunk that wanted rows, in order."""
        return np.split(self.states, np.cumsum(self._counts)[:-1])
