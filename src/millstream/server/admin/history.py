"""An engine's counts over the last minute, and the rates that follow from them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from millstream.engine.protocol import EngineStats
from millstream.server.telemetry.timing import WINDOW_SECONDS


class _Counts(NamedTuple):
    """What rates are made of. ``at``: seconds."""

    at: float
    generated: int
    prompt: int
    cached: int
    restarts: int


class History:
    """Of one engine; it is told what the engine answered at each look."""

    def __init__(self) -> None:
        self._counts: deque[_Counts] = deque()
        self._silent = True

    def look(self, stats: EngineStats | None, now: float) -> None:
        """``stats`` None: it did not answer."""
        self._silent = stats is None
        if stats is None:
            return
        self._counts.append(
            _Counts(now, stats.generated_tokens, stats.prompt_tokens, stats.cached_tokens, stats.restarts)
        )
        while self._counts[0].at < now - WINDOW_SECONDS and len(self._counts) > 1:
            self._counts.popleft()

    def decode_rate(self) -> float:
        """Tokens per second since the look before."""
        return self._rate("generated")

    def prompt_rate(self) -> float:
        return self._rate("prompt")

    def restarted(self) -> bool:
        """Whether the process was started again since the look before."""
        last = self._last_two()
        return last is not None and last[1].restarts > last[0].restarts

    def hit_ratio(self) -> float | None:
        """Part of the prompt tokens of the last minute that the prefix cache had."""
        if len(self._counts) < 2:
            return None
        first, last = self._counts[0], self._counts[-1]
        prompt = last.prompt - first.prompt
        return min(1.0, max(0, last.cached - first.cached) / prompt) if prompt > 0 else None

    def stale(self, now: float) -> bool:
        """Whether a look now would have nothing to compare with."""
        return not self._counts or now - self._counts[-1].at > WINDOW_SECONDS

    def _last_two(self) -> tuple[_Counts, _Counts] | None:
        return None if self._silent or len(self._counts) < 2 else (self._counts[-2], self._counts[-1])

    def _rate(self, name: str) -> float:
        """0 where the counts say nothing, as after they began anew."""
        last = self._last_two()
        if last is None or last[1].at <= last[0].at:
            return 0.0
        before, now = last
        return float(max(0, getattr(now, name) - getattr(before, name)) / (now.at - before.at))
