"""A short benchmark of the server that is shown: a run of `millstream.bench.http`, and what is kept of it."""

from __future__ import annotations

import time

import msgspec

from millstream.bench.errors import BenchError
from millstream.bench.http.client import Timings
from millstream.bench.http.figures import Figures
from millstream.bench.http.run import Plan as HttpPlan
from millstream.bench.http.run import Target, measure
from millstream.bench.http.workload import Workload
from millstream.tui.errors import ServerError
from millstream.tui.text import line

_MESSAGE_WIDTH = 300


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``concurrency``: requests that are open at a time. ``max_tokens``: new tokens of each, no fewer: the model's own
    end is ignored, so that runs compare. ``model``: empty for the first that the server names."""

    model: str = ""
    requests: int = 16
    concurrency: int = 4
    max_tokens: int = 64


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """``when``: seconds since 1970."""

    plan: Plan
    when: float
    figures: Figures


class Tally:
    """What a run has measured so far. Written by the thread that measures, read by the one that draws."""

    def __init__(self) -> None:
        self._sent: list[Timings] = []

    def add(self, timings: Timings) -> None:
        """A request was sent; its timings grow meanwhile."""
        self._sent.append(timings)

    @property
    def done(self) -> int:
        """Whole answers."""
        return sum(one.ended > 0 and one.error is None for one in self._sent)

    @property
    def failed(self) -> int:
        """Requests without one."""
        return sum(one.error is not None for one in self._sent)

    @property
    def pieces(self) -> int:
        """Events that brought tokens."""
        return sum(len(one.stamps) for one in self._sent)


async def run(url: str, key: str | None, plan: Plan, tally: Tally) -> Result:
    """Measure; ``tally`` grows meanwhile. Prompts are new in every run, so that a prefix cache has no more than the
    template of them.

    Raises:
        ServerError: nothing could be measured.
    """
    when = time.time()
    workload = Workload(name="top", requests=plan.requests, concurrency=plan.concurrency, max_tokens=plan.max_tokens)
    target = Target(url=url, key=key, model=plan.model or None)
    try:
        report = await measure([target], HttpPlan(workload=workload, rounds=1, seed=time.time_ns()), on_sent=tally.add)
    except BenchError as error:
        raise ServerError(line(str(error).removeprefix(f"{url}: "), _MESSAGE_WIDTH)) from None
    return Result(plan=plan, when=when, figures=report.servers[0].rounds[0])
