"""When an engine process counts as hung, and when and how often it is started again. Pure: no clock, no process."""

from __future__ import annotations

import msgspec


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds.

    ``step_deadline``: an engine that has work, says nothing for this long, and whose step does not get on meanwhile is
    hung. ``step_floor``: once steps have been measured, silence that is long beside them is
    enough, but never less than this. ``starved_deadline``: one that the machine keeps from running is given this long.
    ``start_deadline``: the model must be loaded within, when the process is started
    again.
    ``start_failures``: after this many in a row there are no more attempts. ``first_delay``: pause after the first
    failed start; it doubles with each further one, up to ``longest_delay``. ``settled``: a process that was ready for
    this long, or that did any work, has not failed to start.
    """

    step_deadline: float = 60.0
    step_floor: float = 15.0
    starved_deadline: float = 300.0
    start_deadline: float = 600.0
    start_failures: int = 5
    first_delay: float = 0.5
    longest_delay: float = 30.0
    settled: float = 5.0


class RestartPolicy:
    """Counts failed starts. A process that worked and died is replaced at once."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self.failures = 0
        """Failed starts in a row."""

    def ended(self, *, ready_seconds: float, worked: bool) -> None:
        """A process that had been ready for this long ended; ``worked``: it was given something and answered."""
        if worked or ready_seconds >= self._supervision.settled:
            self.failures = 0
        else:
            self.failures += 1

    def start_failed(self) -> None:
        """A process ended before it was ready."""
        self.failures += 1

    @property
    def exhausted(self) -> bool:
        """Whether no further start is worth an attempt."""
        return self.failures >= self._supervision.start_failures

    @property
    def delay(self) -> float:
        """Seconds until the next attempt."""
        if not self.failures:
            return 0.0
        return min(self._supervision.first_delay * 2.0 ** (self.failures - 1), self._supervision.longest_delay)


class StepTimes:
    """What steps took, and how long one may take before the engine counts as hung.

    A step is held against the slowest rate of the last steps, times `MARGIN`: a chunk far into a long context, or a
    machine that others use too, takes several times longer than the same number of tokens otherwise.
    """

    MARGIN = 20.0
    DECAY = 0.98
    LEAST_STEPS = 16

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self._steps = 0
        self._slowest = 0.0

    def ran(self, tokens: int, seconds: float) -> None:
        """A step with so many tokens took so long."""
        self._steps += 1
        self._slowest = max(seconds / max(tokens, 1), self.DECAY * self._slowest)

    def deadline(self, tokens: int) -> float:
        """Seconds of silence after which a step with so many tokens has no end."""
        if self._steps < self.LEAST_STEPS:
            return self._supervision.step_deadline
        allowed = max(self._supervision.step_floor, self.MARGIN * self._slowest * tokens)
        return min(allowed, self._supervision.step_deadline)


class Watchdog:
    """Notices an engine that has work and says nothing.

    Silence is counted in ticks of ``interval`` seconds rather than measured: if this process itself was stopped or
    kept from running, the time is not held against the engine. Nor is the part of a tick in which the engine would
    have run and was not let, up to `Supervision.starved_deadline`.
    """

    LONGEST_INTERVAL = 1.0
    TICKS = 20

    def __init__(self, supervision: Supervision) -> None:
        shortest = min(supervision.step_deadline, supervision.step_floor)
        self.interval = min(shortest / self.TICKS, self.LONGEST_INTERVAL)
        self._starved_deadline = supervision.starved_deadline
        self.heard()

    def heard(self) -> None:
        """A message came."""
        self._silent = 0
        self._excused = 0.0

    @property
    def silent(self) -> bool:
        """Whether nothing has come since the tick before the last."""
        return self._silent > 1

    def tick(self, *, busy: bool, deadline: float, share: float = 1.0) -> bool:
        """To be called every ``interval``; whether the engine is hung. ``busy``: an answer is due; ``share``: see
        `millstream.engine.vitals.share_of_time`."""
        if not busy:
            self.heard()
            return False
        self._silent += 1
        self._excused += 1.0 - share
        held_against = self._silent - self._excused
        return max(held_against / deadline, self._silent / max(deadline, self._starved_deadline)) * self.interval > 1.0
