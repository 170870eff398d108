"""Masks of constrained sequences, written by threads of their own while the forward pass of a step runs.

Grammars are strangers', so no step waits for one without end: a row that keeps its thread for too long is given up, its
sequence ends with an error, and another thread goes on with the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence as SequenceOf
from queue import SimpleQueue
from typing import TYPE_CHECKING

from millstream.engine.arrays import int_rows, integers, repeated
from millstream.scheduler.sequence import Constraint, Sequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
"""How long the first row that no thread can finish is waited for, in a step whose forward pass is over; each further
one half as long. llguidance's own limits end a mask after some milliseconds."""

_LEAST_PATIENCE = 0.1

_MOST_THREADS = 4
"""More would take processors from the forward pass to no end: a mask takes some tens of microseconds."""


class Lost:
    """Takes the place of a constraint that cannot be asked any more; a `Constraint` that allows nothing."""

    finished = False

    def __init__(self, error: str) -> None:
        self.error = error

    def mask(self, out: NDArray[np.uint32]) -> None:
        out.fill(0)

    def forced(self) -> int | None:
        return None

    def advance(self, token: int) -> None:
        pass


class StepMasks:
    """The masks of the step that runs. A `millstream.native.SamplingBatch` is made after `begin` with ``bits`` [masks,
    ceil(vocab / 32)] as its ``masks`` and ``of_rows`` [max_rows] as its ``mask_rows``; `finish` completes what they
    hold."""

    def __init__(self, max_rows: int, vocab_size: int, *, processors: int, patience: float = PATIENCE_SECONDS) -> None:
        self._words = -(-vocab_size // 32)
        self._threads = MaskThreads(min(_MOST_THREADS, -(-processors // 2)), patience)
        self._sequences: list[tuple[int, Sequence]] = []
        self._job: MaskJob | None = None
        self.of_rows = repeated(-1, max_rows)
        self.bits: NDArray[np.uint32] | memoryview[int] = self._no_bits()
        self._written: NDArray[np.uint32] | None = None

    def begin(self, sequences: SequenceOf[Sequence]) -> bool:
        """Begin to write the masks of these rows; False if there are none to write."""
        constrained = [(row, each) for row, each in enumerate(sequences) if each.constraint is not None]
        for row, _ in self._sequences:
            self.of_rows[row] = -1
        self._sequences = constrained
        if not constrained:
            return False
        for index, (row, _) in enumerate(constrained):
            self.of_rows[row] = index
        if self._written is None:  # most engines never see a grammar
            import numpy as np

            rows = len(self.of_rows) + 1  # the last stays empty
            self.bits = self._written = np.zeros((rows, self._words), np.uint32)
        constraints = [each.constraint for _, each in constrained if each.constraint is not None]
        self._job = self._threads.begin(constraints, self._written)
        return True

    def finish(self) -> None:
        """Wait for what was begun. A sequence whose mask is not to be had is constrained to nothing from then on."""
        if self._job is None:
            return
        lost = self._threads.finish(self._job)
        for index, error in lost.items():
            row, sequence = self._sequences[index]
            sequence.constraint = Lost(error)
            self.of_rows[row] = len(self.bits) - 1
        if lost:  # their threads may still write
            self.bits, self._written = self._no_bits(), None
        self._job = None

    def _no_bits(self) -> memoryview[int]:
        return int_rows(integers(self._words, "I"), self._words)[:0]


class MaskJob:
    """The masks of one step: row k of ``out`` [rows, words] is that of ``constraints[k]``."""

    def __init__(self, constraints: SequenceOf[Constraint], out: NDArray[np.uint32]) -> None:
        self._constraints = constraints
        self._out = out
        self._changed = threading.Condition()
        self._next = 0
        self._in_hand: set[int] = set()
        self._left = len(constraints)
        self.lost: dict[int, str] = {}
        """Rows without a mask, and why."""

    def work(self) -> bool:
        """Write rows until none is left to begin; False if one took so long that it was given up meanwhile."""
        while True:
            with self._changed:
                row = self._next
                if row >= len(self._constraints):
                    return True
                self._next += 1
                self._in_hand.add(row)
            error = self._write(row)
            with self._changed:
                if row not in self._in_hand:
                    return False
                self._drop(row, error)

    def wait(self, patience: float) -> bool:
        """Wait until every row is written or lost; False if no more of them were after ``patience`` seconds."""
        with self._changed:
            while left := self._left:
                if not self._changed.wait(patience) and left == self._left:
                    return False
        return True

    def give_up(self, error: str) -> int:
        """Lose the rows in hand, or the next if there are none; returns how many threads have to be replaced."""
        with self._changed:
            stuck = list(self._in_hand)
            if not stuck and self._next < len(self._constraints):
                self._drop(self._next, error)
                self._next += 1
            for row in stuck:
                self._drop(row, error)
            return len(stuck)

    def _write(self, row: int) -> str | None:
        try:
            self._constraints[row].mask(self._out[row])
        except BaseException:  # also what llguidance makes of a panic
            log.exception("a mask could not be made")
            return "its mask could not be made"
        return None

    def _drop(self, row: int, error: str | None) -> None:
        self._in_hand.discard(row)
        self._left -= 1
        if error is not None:
            self.lost[row] = error
        if not self._left:
            self._changed.notify_all()


class MaskThreads:
    """``count`` threads, which begin with the first job. They never hold up the end of the process."""

    def __init__(self, count: int, patience: float = PATIENCE_SECONDS) -> None:
        self._count = count
        self._patience = patience
        self._running = 0
        self._jobs: SimpleQueue[MaskJob] = SimpleQueue()

    def begin(self, constraints: SequenceOf[Constraint], out: NDArray[np.uint32]) -> MaskJob:
        """Begin to write the mask of each into its row of ``out`` [rows, words]."""
        job = MaskJob(constraints, out)
        self._hire(self._count - self._running)
        if not self._running:
            job.work()
        for _ in range(min(self._running, len(constraints))):
            self._jobs.put(job)
        return job

    def finish(self, job: MaskJob) -> dict[int, str]:
        """Wait for a job; returns the rows that have no mask, and why. These may still be written to."""
        patience = self._patience
        while not job.wait(patience):
            stuck = job.give_up("its next mask took too long")
            log.error("gave up %d masks after %.1f s", stuck, patience)
            self._running -= stuck
            self._hire(stuck)
            self._jobs.put(job)
            patience = max(patience / 2, _LEAST_PATIENCE)
        return job.lost

    def _hire(self, count: int) -> None:
        for _ in range(count):
            try:
                threading.Thread(target=self._serve, name="masks", daemon=True).start()
            except RuntimeError:  # no thread to be had: those that there are do the work
                log.warning("a thread for masks could not be started")
                return
            self._running += 1

    def _serve(self) -> None:
        while self._jobs.get().work():
            pass
