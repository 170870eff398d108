"""Rounds of a workload: A B, B A, … with the same conversations for every server of a round and new ones in the next.

On a shared machine a speed alone says little; the ratio of two servers that were measured in turns says more.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from millstream.bench.errors import BenchError
from millstream.bench.http.client import Server, Timings
from millstream.bench.http.figures import Figures, Limit, figures, median
from millstream.bench.http.prompts import conversations
from millstream.bench.http.workload import Conversation, Workload


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server to measure. ``model`` None: the first one that it serves."""

    url: str
    key: str | None = None
    model: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds``: after so long an answer is given up. ``seed``: of the first round's conversations."""

    workload: Workload
    rounds: int = 3
    limit: Limit = Limit()
    seconds: float = 600.0
    seed: int = 1


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One server: its figures of every round, and the first tokens and gaps of all of them, in seconds."""

    url: str
    model: str
    rounds: list[Figures]
    first_tokens: list[float]
    inter_tokens: list[float]

    def median(self, figure: Callable[[Figures], float | None]) -> float:
        """Over the rounds that have it."""
        return median([value for one in self.rounds if (value := figure(one)) is not None])

    def ratio(self, baseline: Measured, figure: Callable[[Figures], float | None]) -> float:
        """The median of the rounds' ratios to another server."""
        pairs = zip(self.rounds, baseline.rounds, strict=True)
        return median([mine / other for a, b in pairs if (mine := figure(a)) and (other := figure(b))])


class HttpReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; the first server is the one that others are compared with."""

    workload: Workload
    limit: Limit
    servers: list[Measured]


def run_http_benchmark(
    targets: Sequence[Target], plan: Plan, *, on_stage: Callable[[str], None] = lambda stage: None
) -> HttpReport:
    """Measure servers in turns.

    Raises:
        BenchError: a server does not answer, or not one of its answers of a round came to a good end.
    """
    return asyncio.run(measure(targets, plan, on_stage=on_stage))


async def measure(
    targets: Sequence[Target],
    plan: Plan,
    *,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_sent: Callable[[Timings], None] | None = None,
) -> HttpReport:
    """As `run_http_benchmark`, within an event loop. ``on_sent``: as `Server.chat` has it, for every request."""
    runs = [_Run(target, await _model(target), on_sent) for target in targets]
    for number in range(plan.rounds):
        seed = plan.seed + number
        asked = conversations(plan.workload, seed)
        for run in runs if number % 2 == 0 else reversed(runs):
            on_stage(f"round {number + 1} of {plan.rounds}: {run.target.url}")
            await run.round(asked, plan, seed)
    return HttpReport(workload=plan.workload, limit=plan.limit, servers=[run.measured() for run in runs])


async def _model(target: Target) -> str:
    return target.model or await Server(target.url, key=target.key).model()


class _Run:
    def __init__(self, target: Target, model: str, on_sent: Callable[[Timings], None] | None) -> None:
        self.target = target
        self._on_sent = on_sent
        self._model = model
        self._server = Server(target.url, key=target.key)
        self._rounds: list[Figures] = []
        self._found: list[Timings] = []

    async def round(self, asked: Sequence[Conversation], plan: Plan, seed: int) -> None:
        bodies = [body_of(plan.workload, self._model, conversation) for conversation in asked]
        begun = time.perf_counter()
        if plan.workload.rate is None:
            found = await self._closed(bodies, plan)
        else:
            found = await self._arriving(bodies, plan, plan.workload.rate, random.Random(seed))
        one = figures(found, time.perf_counter() - begun, plan.limit)
        if one.failed == one.requests:
            raise BenchError(f"{self.target.url}: no request came to a good end: {one.error}")
        self._rounds.append(one)
        self._found += [timings for timings in found if timings.error is None]

    async def _closed(self, bodies: Sequence[bytes], plan: Plan) -> list[Timings]:
        """Clients that send their next request when they have their answer."""
        left = iter(bodies)
        found: list[Timings] = []

        async def client() -> None:
            for body in left:
                found.append(await self._chat(body, plan))

        await asyncio.gather(*(client() for _ in range(plan.workload.concurrency)))
        return found

    async def _arriving(self, bodies: Sequence[bytes], plan: Plan, rate: float, chance: random.Random) -> list[Timings]:
        """Requests that come whether others are answered or not, at the same times for every server."""
        begun = time.perf_counter()
        due = 0.0
        open_requests: list[asyncio.Task[Timings]] = []
        for body in bodies:
            due += chance.expovariate(rate)
            await asyncio.sleep(max(0.0, begun + due - time.perf_counter()))
            open_requests.append(asyncio.create_task(self._chat(body, plan)))
        return list(await asyncio.gather(*open_requests))

    async def _chat(self, body: bytes, plan: Plan) -> Timings:
        return await self._server.chat(body, plan.seconds, on_sent=self._on_sent)

    def measured(self) -> Measured:
        return Measured(
            url=self.target.url,
            model=self._model,
            rounds=self._rounds,
            first_tokens=[one.first_token for one in self._found],
            inter_tokens=[
                after - before for one in self._found for before, after in zip(one.stamps, one.stamps[1:], strict=False)
            ],
        )


def body_of(workload: Workload, model: str, conversation: Conversation) -> bytes:
    """The request as JSON."""
    body: dict[str, Any] = {
        "model": model,
        "messages": conversation,
        "max_tokens": workload.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if workload.ignore_eos:
        body["ignore_eos"] = True
    return msgspec.json.encode({**body, **workload.fields})
