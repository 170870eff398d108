"""When an engine process counts as hung, and when and how often it is started again. Pure: no clock, no process."""

from __future__ import annotations

import msgspec


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds.

    ``step_deadline``: an engine that has work and says nothing for this long is hung; it must be longer than the
    longest step. ``start_deadline``: the model must be loaded within, when the process is started again.
    ``start_failures``: after this many in a row there are no more attempts. ``first_delay``: pause after the first
    failed start; it doubles with each further one, up to ``longest_delay``. ``settled``: a process that was ready for
    this long, or that did any work, has not failed to start.
    """

    step_deadline: float = 60.0
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


class Watchdog:
    """Notices an engine that has work and says nothing.

    Silence is counted in ticks of ``interval`` seconds rather than measured: if this process itself was stopped or
    kept from running, the time is not held against the engine.
    """

    TICKS = 20

    def __init__(self, deadline: float) -> None:
        self.interval = deadline / self.TICKS
        self._silent = 0

    def heard(self) -> None:
        """A message came."""
        self._silent = 0

    def tick(self, *, busy: bool) -> bool:
        """To be called every ``interval``; whether the engine is hung. ``busy``: an answer is due."""
        self._silent = self._silent + 1 if busy else 0
        return self._silent > self.TICKS
