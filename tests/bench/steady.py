"""A runner without the native part: every step takes one second of a clock that the test owns."""

from __future__ import annotations

from millstream.scheduler.scheduler import Chunk, Sampled


class Clock:
    """Stands for `time.perf_counter`; a step moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class SteadyRunner:
    """Samples token 7; a step takes a second, three quarters of it in the native core."""

    progress = 0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.native_seconds = 0.0
        self.steps = 0
        self.refuses = False

    def execute(self, chunks: list[Chunk]) -> Sampled:
        if self.refuses:
            raise ValueError("token 9 is outside the vocabulary")
        self._clock.now += 1.0
        self.native_seconds += 0.75
        self.steps += 1
        rows = sum(chunk.sample for chunk in chunks)
        return Sampled(tokens=[7] * rows, logprobs=[None] * rows)
