"""The engine loop without its process: a scheduler and the runner that executes its steps.

A step is shared by strangers, so what one of them brought must not end it for the others: requests are checked when
they come, and a batch that cannot run is run again sequence by sequence, which gives the same tokens.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from millstream.engine.admission import check_request
from millstream.engine.protocol import EngineStats, PauseReason, SequenceView, TokenDelta, TokenRequest
from millstream.scheduler.scheduler import Chunk, QueueFull, Sampled, Scheduler
from millstream.scheduler.sequence import Constraint

log = logging.getLogger(__name__)

_ROW_FAULTS = (ValueError, TypeError, ArithmeticError, LookupError, MemoryError)
"""What a runner raises for what a chunk holds; anything else is a fault of the engine, which ends it."""


class Runner(Protocol):
    """Executes chunks. One that cannot run raises ValueError; the step may be tried again without it."""

    @property
    def native_seconds(self) -> float:
        """Time spent in the native core so far."""
        ...

    @property
    def progress(self) -> int:
        """Another number whenever the step that runs has got on since the last look."""
        ...

    def execute(self, chunks: list[Chunk]) -> Sampled: ...


class GrammarCounts(NamedTuple):
    """See `EngineStats`."""

    compiled: int = 0
    reused: int = 0
    kept_bytes: int = 0


class Constraints(Protocol):
    """Where constraints come from."""

    def __call__(self, request: TokenRequest) -> Constraint | None:
        """The constraint of a request, advanced by the output that exists already. Raises ValueError if it cannot."""
        ...

    def prepare(self) -> None:
        """Begin, in a thread, what constraints need and what takes long."""
        ...

    def prepared(self, request: TokenRequest) -> bool:
        """Whether that is done, or this request does not need it; if not, it is begun."""
        ...

    def counts(self) -> GrammarCounts: ...


class EngineCore:
    """One `step` at a time; every call is made from one thread, but `stats` and `sequences` from any: these wait for
    the scheduler, never for the runner.

    Without ``constraints`` grammars are refused. ``vocab_size``: token ids are checked against it; None: they are not.
    ``clock``: seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        constraints: Constraints | None = None,
        *,
        vocab_size: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self._constraints = constraints
        self._vocab_size = vocab_size
        self._clock = clock
        self._refused: list[TokenDelta] = []
        self._step_seconds = 0.0
        self._moved = self._clock()
        self._scheduling = threading.Lock()

    def add(self, request: TokenRequest) -> None:
        """Queue a request; one that cannot be queued ends with an error delta in the next step."""
        self._moved = self._clock()
        try:
            if self._vocab_size is not None:
                check_request(request, self._vocab_size)
            constraint = self._constraint(request)
            with self._scheduling:
                self.scheduler.add(request, constraint, now=self._moved)
        except ValueError as error:
            self._refused.append(TokenDelta(id=request.id, finish="error", error=str(error), refused=True))
        except QueueFull:
            self._refused.append(TokenDelta(id=request.id, finish="error", error="the queue is full"))

    def prepare(self) -> None:
        """Begin, in a thread, what the first constrained request would have to wait for."""
        if self._constraints is not None:
            self._constraints.prepare()

    def prepared(self, request: TokenRequest) -> bool:
        """Whether `add` takes this request without a long wait; if not, what it needs is begun in a thread."""
        return self._constraints is None or self._constraints.prepared(request)

    def _constraint(self, request: TokenRequest) -> Constraint | None:
        if self._constraints is not None:
            return self._constraints(request)
        if request.grammar is not None or request.thinking is not None:
            raise ValueError("this engine has no grammars")
        return None

    def abort(self, request_id: str) -> None:
        with self._scheduling:
            self.scheduler.abort(request_id)

    def pause(self, request_id: str, reason: PauseReason) -> None:
        """See `Scheduler.pause`, as for the methods that follow."""
        with self._scheduling:
            self.scheduler.pause(request_id, reason)

    def resume(self, request_id: str, reason: PauseReason) -> None:
        with self._scheduling:
            self.scheduler.resume(request_id, reason)

    def reprioritise(self, request_id: str, priority: int) -> None:
        with self._scheduling:
            self.scheduler.reprioritise(request_id, priority, now=self._clock())

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or bool(self._refused)

    def step(self, starting: Callable[[list[str], int], None] | None = None) -> list[TokenDelta]:
        """Run one step; returns the new tokens of every sequence that has any.

        ``starting`` is called with the ids of the step's sequences and the number of tokens before they run.
        """
        begun = self._moved = self._clock()
        deltas, self._refused = self._refused, []
        with self._scheduling:
            chunks = self.scheduler.schedule(begun)
        if chunks:
            if starting is not None:
                starting([chunk.sequence.id for chunk in chunks], sum([chunk.count for chunk in chunks]))
            deltas += self._run(chunks)
        self._moved = self._clock()
        self._step_seconds += self._moved - begun
        return deltas

    def _run(self, chunks: list[Chunk]) -> list[TokenDelta]:
        try:
            sampled = self.runner.execute(chunks)
        except _ROW_FAULTS as error:
            if len(chunks) == 1:
                with self._scheduling:
                    return self.scheduler.fail(chunks, _told(error))
            return [delta for chunk in chunks for delta in self._run([chunk])]
        with self._scheduling:
            return self.scheduler.commit(chunks, sampled, self._clock())

    def stats(self) -> EngineStats:
        """Counts of now; during a step, as they were when it began."""
        with self._scheduling:
            counts = self.scheduler.stats()
        grammars = self._constraints.counts() if self._constraints is not None else GrammarCounts()
        return msgspec.structs.replace(
            counts,
            grammars_compiled=grammars.compiled,
            grammars_reused=grammars.reused,
            grammar_bytes=grammars.kept_bytes,
            native_seconds=self.runner.native_seconds,
            step_seconds=self._step_seconds,
            idle_seconds=self._clock() - self._moved,
        )

    @property
    def progress(self) -> int:
        """See `Runner.progress`; from any thread."""
        return self.runner.progress

    def sequences(self) -> list[SequenceView]:
        """Where each sequence is; during a step, as it was when that began."""
        with self._scheduling:
            return self.scheduler.sequences()


def _told(error: Exception) -> str:
    """What the client reads: the words of a refusal, and nothing of the inside."""
    if isinstance(error, ValueError) and str(error):
        return str(error)
    log.error("a sequence could not be run", exc_info=error)
    return "the engine could not run this request"
