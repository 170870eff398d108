"""Speed of the engine loop in this process: scheduler, arrays, native steps; no server and no socket."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from millstream.bench.errors import BenchError
from millstream.bench.plan import Case, Plan
from millstream.engine.core import EngineCore
from millstream.engine.messages import Step, frame
from millstream.engine.protocol import SamplingParams, TokenRequest

GREEDY = SamplingParams(temperature=0.0)


class Overhead(msgspec.Struct, frozen=True):
    """Where the time of a decoding step goes, on average over ``steps`` steps of ``sequences`` sequences.

    ``python_share`` is everything outside of the native call, as a fraction of the step: scheduling, filling arrays,
    reading results, and encoding the step's message for the API process.
    """

    sequences: int
    steps: int
    step_seconds: float
    native_seconds: float

    @property
    def python_share(self) -> float:
        return 1.0 - self.native_seconds / self.step_seconds


class Timing(NamedTuple):
    """Seconds from submission to when every sequence has its first token, and to the last token of all."""

    first: float
    end: float
    tokens_after_first: int
    tokens: list[list[int]]


class CaseResults(msgspec.Struct, frozen=True):
    """``rates``: for each case but ``check``, tokens per second of every sample. ``check_ids``: what ``check`` made."""

    rates: dict[str, list[float]]
    check_ids: list[int]


def run_plan(core: EngineCore, plan: Plan, *, on_case: Callable[[str], None] = lambda name: None) -> CaseResults:
    """Run every sample of a plan, one after another. Raises `BenchError` if the engine refuses one."""
    rates: dict[str, list[float]] = {}
    check_ids: list[int] = []
    for case in plan.cases:
        on_case(case.name)
        timings = [run_together(core, prompts, case.new_tokens) for prompts in case.reps]
        if case.kind == "check":
            check_ids = [token for timing in timings for token in timing.tokens[0]]
        else:
            rates[case.name] = [
                _rate(case, prompts, timing) for prompts, timing in zip(case.reps, timings, strict=True)
            ]
    return CaseResults(rates, check_ids)


def _rate(case: Case, prompts: list[list[int]], timing: Timing) -> float:
    if case.kind == "prefill":
        return sum(map(len, prompts)) / timing.first
    decoding = timing.end - timing.first
    return timing.tokens_after_first / decoding if decoding > 0 else 0.0


def run_together(core: EngineCore, prompts: list[list[int]], new_tokens: int) -> Timing:
    """Submit prompts at the same moment and step until all have ``new_tokens`` tokens."""
    made: dict[str, list[int]] = {}
    begun = time.perf_counter()
    for prompt in prompts:
        made[submit(core, prompt, new_tokens)] = []
    first: float | None = None
    at_first = 0
    now = begun
    while core.has_work:
        for delta in core.step():
            if delta.error is not None:
                raise BenchError(f"the engine refused a sample: {delta.error}")
            made[delta.id] += delta.tokens
        now = time.perf_counter()
        if first is None and all(made.values()):
            first, at_first = now, sum(map(len, made.values()))
    if first is None:
        raise BenchError("the engine stopped before every sequence had a token")
    total = sum(map(len, made.values()))
    return Timing(first - begun, now - begun, total - at_first, list(made.values()))


def measure_overhead(core: EngineCore, prompts: list[list[int]], *, steps: int = 48) -> Overhead:
    """Average parts of ``steps`` steps in which every prompt's sequence decodes one token."""
    waiting = {submit(core, prompt, len(prompts) + steps + 64) for prompt in prompts}
    ids = set(waiting)
    try:
        while waiting:
            for delta in core.step():
                if delta.error is not None:
                    raise BenchError(f"the engine refused a sequence: {delta.error}")
                if delta.tokens:
                    waiting.discard(delta.id)
        native = core.stats().native_seconds
        begun = time.perf_counter()
        for _ in range(steps):
            frame(Step(core.step()))
        elapsed = time.perf_counter() - begun
        native = core.stats().native_seconds - native
    finally:
        for request_id in ids:
            core.abort(request_id)
    return Overhead(sequences=len(prompts), steps=steps, step_seconds=elapsed / steps, native_seconds=native / steps)


_serials = itertools.count()


def submit(
    core: EngineCore, prompt: list[int], new_tokens: int, *, grammar: str | None = None, speculation: bool = False
) -> str:
    """Queue a prompt; returns its id. Drafts (``speculation``) make of the speed of the engine that of a text."""
    request_id = f"bench-{next(_serials)}"
    core.add(
        TokenRequest(
            id=request_id,
            prompt=prompt,
            sampling=GREEDY,
            max_tokens=new_tokens,
            grammar=grammar,
            speculation=speculation,
        )
    )
    return request_id
