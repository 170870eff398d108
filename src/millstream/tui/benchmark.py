"""A short benchmark over HTTP: N different prompts, so many at a time, streamed.

Latencies are those that a client sees. Time to first token: from sending the request to the first piece of answer
(content or thought). Between tokens: the gaps from one piece to the next; with speculation a piece may hold several
tokens, as vLLM's `benchmark_serving` counts too.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from millstream.admin.views import Percentiles
from millstream.tui.conversation import read_chunk
from millstream.tui.errors import ServerError
from millstream.tui.sse import Event

_WORDS = (
    "river", "stone", "morning", "window", "garden", "engine", "paper", "bridge", "winter", "harbour", "copper",
    "lantern", "meadow", "signal", "orchard", "valley", "timber", "market", "circle", "shadow", "thunder", "island",
    "candle", "mirror", "feather", "anchor", "desert", "violin", "saddle", "kettle",
)  # fmt: skip
_PROMPT_WORDS = 48

Chat = Callable[[dict[str, Any]], AsyncIterator[Event]]
"""Sends a body of ``/v1/chat/completions``; the events of its stream."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``concurrency``: requests that are open at a time. ``max_tokens``: new tokens of each, no fewer: the model's own
    end is ignored, so that runs compare. ``model``: empty for the server's default."""

    model: str = ""
    requests: int = 16
    concurrency: int = 4
    max_tokens: int = 64


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """``when``: seconds since 1970. Times are seconds. ``problem``: the first failure."""

    plan: Plan
    when: float
    seconds: float
    done: int
    failed: int
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token: Percentiles = Percentiles()
    inter_token: Percentiles = Percentiles()
    whole: Percentiles = Percentiles()
    problem: str = ""

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all requests together, per second of the whole run."""
        return self.completion_tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def requests_per_second(self) -> float:
        """Answers per second."""
        return self.done / self.seconds if self.seconds > 0 else 0.0


class Tally:
    """What a run has measured so far."""

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.pieces = 0
        self.problem = ""
        self.first: list[float] = []
        self.gaps: list[float] = []
        self.whole: list[float] = []


def percentiles(values: list[float]) -> Percentiles:
    """Nearest-rank percentiles; all None without values."""
    if not values:
        return Percentiles()
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Percentiles(p50=at(0.50), p95=at(0.95), p99=at(0.99))


def prompt(number: int, seed: int) -> str:
    """A text that no earlier run has asked, so that a prefix cache has no more than the template of it."""
    rng = random.Random(f"{seed}:{number}")
    words = " ".join(rng.choice(_WORDS) for _ in range(_PROMPT_WORDS))
    return f"Write a story with these words: {words}"


async def run(chat: Chat, plan: Plan, tally: Tally, clock: Callable[[], float] = time.perf_counter) -> Result:
    """Measure; ``tally`` grows meanwhile. One request that fails does not end the run; three in a row do.

    Raises:
        ServerError: nothing could be measured.
    """
    numbers = iter(range(plan.requests))
    seed = time.time_ns()
    in_a_row = 0

    async def client() -> None:
        nonlocal in_a_row
        for number in numbers:
            if in_a_row >= 3:
                return
            try:
                await _measure(chat, _body(plan, number, seed), tally, clock)
            except ServerError as error:
                tally.failed += 1
                tally.problem = tally.problem or error.message
                in_a_row += 1
            else:
                in_a_row = 0

    when, begun = time.time(), clock()
    await asyncio.gather(*(client() for _ in range(min(plan.concurrency, plan.requests))))
    if not tally.done:
        raise ServerError(tally.problem or "no request was answered.")
    return Result(
        plan=plan,
        when=when,
        seconds=clock() - begun,
        done=tally.done,
        failed=tally.failed,
        prompt_tokens=tally.prompt_tokens,
        completion_tokens=tally.completion_tokens,
        first_token=percentiles(tally.first),
        inter_token=percentiles(tally.gaps),
        whole=percentiles(tally.whole),
        problem=tally.problem,
    )


def _body(plan: Plan, number: int, seed: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": prompt(number, seed)}],
        "max_tokens": plan.max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return {**body, "model": plan.model} if plan.model else body


async def _measure(chat: Chat, body: dict[str, Any], tally: Tally, clock: Callable[[], float]) -> None:
    begun = clock()
    last: float | None = None
    gaps: list[float] = []
    first = 0.0
    finished = False
    async for event in chat(body):
        chunk = read_chunk(event)
        now = clock()
        if any(choice.delta.content or choice.delta.reasoning_content for choice in chunk.choices):
            if last is None:
                first = now - begun
            else:
                gaps.append(now - last)
            last = now
            tally.pieces += 1
        finished = finished or any(choice.finish_reason for choice in chunk.choices)
        if chunk.usage is not None:
            tally.prompt_tokens += chunk.usage.prompt_tokens
            tally.completion_tokens += chunk.usage.completion_tokens
    if not finished:
        raise ServerError("a stream ended before its answer was whole.")
    tally.done += 1
    tally.whole.append(clock() - begun)
    if last is not None:
        tally.first.append(first)
        tally.gaps += gaps
