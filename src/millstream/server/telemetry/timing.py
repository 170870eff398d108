"""A histogram of durations for what happens once per token, which also knows the last minute.

Prometheus is told the coarse buckets; percentiles are read from eight finer ones in each, so that they are right within
some percent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from millstream.admin.views import Percentiles

WINDOW_SECONDS = 60.0
_MARK_SECONDS = 5.0
"""How exactly the window's beginning is known."""

_FINER = 8


class Timing(Collector):
    """Written and read in one thread, so without the locks of the library's histograms. ``bounds``: upper bounds in
    seconds, ascending. Times are those of one monotonic clock."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._fine = _finer(bounds)
        self._counts = [0] * (len(self._fine) + 1)
        self._sum = 0.0
        self._marks: deque[tuple[float, list[int]]] = deque()
        self._next_mark = 0.0

    def observe(self, seconds: float, now: float) -> None:
        """Count a duration that ended ``now``."""
        if now >= self._next_mark:
            self._mark(now)
        self._counts[bisect_left(self._fine, seconds)] += 1
        self._sum += seconds

    def percentiles(self, now: float) -> Percentiles:
        """Of the last minute."""
        if now >= self._next_mark:
            self._mark(now)
        counts = [count - before for count, before in zip(self._counts, self._marks[0][1], strict=True)]
        total = sum(counts)
        if not total:
            return Percentiles()
        return Percentiles(
            p50=self._quantile(counts, 0.50 * total),
            p95=self._quantile(counts, 0.95 * total),
            p99=self._quantile(counts, 0.99 * total),
        )

    def collect(self) -> Iterable[Metric]:
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        below = list(accumulate(self._counts))
        ends = [*(bisect_left(self._fine, bound) for bound in self._bounds), len(self._fine)]
        buckets = [(name, float(below[end])) for name, end in zip(names, ends, strict=True)]
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)

    def _mark(self, now: float) -> None:
        """Remember the counts, and forget those that are too old to be the beginning of the window."""
        self._marks.append((now, list(self._counts)))
        while self._marks[0][0] < now - WINDOW_SECONDS:
            self._marks.popleft()
        self._next_mark = now + _MARK_SECONDS

    def _quantile(self, counts: Sequence[int], rank: float) -> float:
        """The duration below which ``rank`` of the counted ones are, taken as spread evenly inside of its bucket."""
        below = 0
        for index, count in enumerate(counts[:-1]):
            if count and below + count >= rank:
                low = self._fine[index - 1] if index else 0.0
                return low + (self._fine[index] - low) * (rank - below) / count
            below += count
        return self._fine[-1]


def _finer(bounds: Sequence[float]) -> list[float]:
    """The bounds, with others between them at equal ratios."""
    fine = [bounds[0] * part / _FINER for part in range(1, _FINER)]
    for low, high in pairwise(bounds):
        fine += [low, *(low * (high / low) ** (part / _FINER) for part in range(1, _FINER))]
    return [*fine, bounds[-1]]
