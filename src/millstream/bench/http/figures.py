"""The figures of one round: percentiles, rates, and how much of it was within the limits (goodput)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from millstream.bench.http.client import Timings


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What a user finds good: seconds to the first token and per token after it. None: no limit."""

    first_token: float | None = None
    per_token: float | None = None

    def met_by(self, timings: Timings) -> bool:
        """Whether an answer without error was good."""
        if self.first_token is not None and timings.first_token > self.first_token:
            return False
        return self.per_token is None or (per_token(timings) or 0.0) <= self.per_token


class Spread(msgspec.Struct, frozen=True):
    """Percentiles of a duration in seconds."""

    p50: float
    p90: float
    p99: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One server in one round. ``inter_token``: between events that brought tokens; ``per_token``: an answer's time
    after its first token by its tokens. ``good_rate``: answers within the limit per second. ``error``: the first."""

    requests: int
    failed: int
    error: str | None
    seconds: float
    tokens: int
    cached_tokens: int
    prompt_tokens: int
    first_token: Spread | None
    inter_token: Spread | None
    per_token: Spread | None
    good: int

    @property
    def token_rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def request_rate(self) -> float:
        return (self.requests - self.failed) / self.seconds

    @property
    def good_rate(self) -> float:
        return self.good / self.seconds


def figures(found: Sequence[Timings], seconds: float, limit: Limit) -> Figures:
    """Sum up a round that took ``seconds``."""
    ended = [one for one in found if one.error is None]
    gaps = [after - before for one in ended for before, after in zip(one.stamps, one.stamps[1:], strict=False)]
    return Figures(
        requests=len(found),
        failed=len(found) - len(ended),
        error=next((one.error for one in found if one.error), None),
        seconds=seconds,
        tokens=sum(one.tokens for one in ended),
        cached_tokens=sum(one.cached_tokens for one in ended),
        prompt_tokens=sum(one.prompt_tokens for one in ended),
        first_token=spread([one.first_token for one in ended]),
        inter_token=spread(gaps),
        per_token=spread([value for one in ended if (value := per_token(one)) is not None]),
        good=sum(limit.met_by(one) for one in ended),
    )


def per_token(timings: Timings) -> float | None:
    """Seconds per token after the first event; None if there was nothing after it."""
    if timings.tokens < 2 or len(timings.stamps) < 2:
        return None
    return (timings.stamps[-1] - timings.stamps[0]) / (timings.tokens - 1)


def spread(values: Sequence[float]) -> Spread | None:
    """Percentiles by linear interpolation; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return Spread(*(_at(ordered, part) for part in (0.5, 0.9, 0.99)))


def _at(ordered: Sequence[float], part: float) -> float:
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return statistics.median(values) if values else float("nan")
