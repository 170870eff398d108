"""Log probabilities of prompts: the rows of a step whose next token is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.engine.protocol import TokenAlternatives
from millstream.native import TokenScores

if TYPE_CHECKING:
    from millstream.scheduler.scheduler import Chunk


class Scoring:
    """What the chunks of one step want scored (at least one does), and where the step writes it.

    The arrays are made anew: few requests ask for this, and a step that reads a prompt takes long beside it.
    """

    def __init__(self, chunks: list[Chunk]) -> None:
        """``chunks``: all of the step, in order."""
        rows: list[int] = []
        targets: list[int] = []
        begin = 0
        for chunk in chunks:
            score, first = chunk.score, begin - chunk.start
            rows += range(first + score.start, first + score.stop) if score else ()
            targets += chunk.sequence.tokens[score.start + 1 : score.stop + 1] if score else ()
            begin += chunk.count
        self._chunks = [chunk for chunk in chunks if chunk.score]
        self._rows, self._targets = np.array(rows, np.int32), np.array(targets, np.int32)
        width = max(_alternatives(chunk) for chunk in self._chunks)
        self._logprobs = np.empty(len(rows), np.float32)
        self._top_ids = np.empty((len(rows), width), np.int32)
        self._top_logprobs = np.empty((len(rows), width), np.float32)

    def arrays(self) -> TokenScores:
        """What the step is given."""
        return TokenScores(
            rows=self._rows,
            targets=self._targets,
            logprobs=self._logprobs,
            top_ids=self._top_ids,
            top_logprobs=self._top_logprobs,
        )

    def results(self) -> list[list[TokenAlternatives]]:
        """What the step wrote, for each chunk that wanted something, in order."""
        found: list[list[TokenAlternatives]] = []
        at = 0
        for chunk in self._chunks:
            end, count = at + len(chunk.score), _alternatives(chunk)
            # The best of a wider list are those of a narrower one.
            ids, values = self._top_ids[at:end, :count], self._top_logprobs[at:end, :count]
            columns = (self._logprobs[at:end].tolist(), ids.tolist(), values.tolist())
            found.append([TokenAlternatives(*row) for row in zip(*columns, strict=True)])
            at = end
        return found


def _alternatives(chunk: Chunk) -> int:
    return chunk.sequence.request.prompt_logprobs or 0
