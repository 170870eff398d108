"""A limit per minute as a bucket: full at first, refilled steadily, emptied by use.

So a minute's worth may be used at once, and after that as much as a minute gives. Use that is known only afterwards
(the tokens of an answer) may leave a debt, which is paid before there is anything again: over time the limit holds
exactly, whatever one request turns out to cost.
"""

from __future__ import annotations

import math

_MINUTE = 60.0
_DUST = 1e-6
"""Less than this is rounding."""


class Bucket:
    """``limit`` units per minute. Times are seconds of one clock that never goes back."""

    def __init__(self, limit: int, now: float) -> None:
        self.limit = limit
        self._level = float(limit)
        self._at = now

    def resize(self, limit: int, now: float) -> None:
        """Another limit; what was used stays used."""
        if limit != self.limit:
            self._level = self._refilled(now) + limit - self.limit
            self.limit = limit

    def take(self, amount: float, now: float) -> None:
        """Use so much, or give it back (a negative amount)."""
        self._level = min(float(self.limit), self._refilled(now) - amount)

    def remaining(self, now: float) -> int:
        """Whole units that are there."""
        return max(0, math.floor(self._refilled(now) + _DUST))

    def wait(self, amount: float, now: float) -> float:
        """Seconds until so much is there (0: it is); more than the limit counts as a full bucket."""
        missing = min(amount, self.limit) - self._refilled(now)
        return 0.0 if missing <= _DUST else missing * _MINUTE / self.limit

    def reset(self, now: float) -> float:
        """Seconds until it is full if nothing more is used."""
        return self.wait(self.limit, now)

    def _refilled(self, now: float) -> float:
        self._level = min(float(self.limit), self._level + max(0.0, now - self._at) * self.limit / _MINUTE)
        self._at = max(self._at, now)
        return self._level
