"""The engine loop without its process: a scheduler and the runner that executes its steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from millstream.engine.protocol import EngineStats, TokenDelta, TokenRequest
from millstream.scheduler.scheduler import Chunk, QueueFull, Sampled, Scheduler
from millstream.scheduler.sequence import Constraint


class Runner(Protocol):
    """Executes chunks. Raises ValueError if the step was refused before anything ran."""

    @property
    def native_seconds(self) -> float:
        """Time spent in the native core so far."""
        ...

    def execute(self, chunks: list[Chunk]) -> Sampled: ...


ConstraintSource = Callable[[str, list[int]], Constraint]
"""Makes the constraint of a grammar, advanced by tokens that exist already. Raises ValueError if it cannot."""


class EngineCore:
    """One `step` at a time; every call is made from one thread. Without ``constraints`` grammars are refused."""

    def __init__(self, scheduler: Scheduler, runner: Runner, constraints: ConstraintSource | None = None) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self._constraints = constraints
        self._refused: list[TokenDelta] = []
        self._step_seconds = 0.0
        self._last_step = time.monotonic()

    def add(self, request: TokenRequest) -> None:
        """Queue a request; one that cannot be queued ends with an error delta in the next step."""
        try:
            self.scheduler.add(request, self._constraint(request))
        except ValueError as error:
            self._refused.append(TokenDelta(id=request.id, finish="error", error=str(error)))
        except QueueFull:
            self._refused.append(TokenDelta(id=request.id, finish="error", error="the queue is full"))

    def _constraint(self, request: TokenRequest) -> Constraint | None:
        if request.grammar is None:
            return None
        if self._constraints is None:
            raise ValueError("this engine has no grammars")
        return self._constraints(request.grammar, request.output)

    def abort(self, request_id: str) -> None:
        self.scheduler.abort(request_id)

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or bool(self._refused)

    def step(self, starting: Callable[[list[str]], None] | None = None) -> list[TokenDelta]:
        """Run one step; returns the new tokens of every sequence that has any.

        ``starting`` is called with the ids of the step's sequences before they run.
        """
        begun = time.monotonic()
        deltas, self._refused = self._refused, []
        chunks = self.scheduler.schedule()
        if chunks:
            if starting is not None:
                starting([chunk.sequence.id for chunk in chunks])
            try:
                sampled = self.runner.execute(chunks)
            except ValueError as error:
                deltas += self.scheduler.fail(chunks, str(error))
            else:
                deltas += self.scheduler.commit(chunks, sampled)
        self._last_step = time.monotonic()
        self._step_seconds += self._last_step - begun
        return deltas

    def stats(self) -> EngineStats:
        return msgspec.structs.replace(
            self.scheduler.stats(),
            native_seconds=self.runner.native_seconds,
            step_seconds=self._step_seconds,
            idle_seconds=time.monotonic() - self._last_step,
        )
