"""What the benchmark counts, on a clock of its own, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.admin.views import Percentiles
from millstream.tui.benchmark import Plan, Result, Tally, percentiles, prompt, run
from millstream.tui.errors import ServerError
from millstream.tui.pages.bench import change
from millstream.tui.results import Results
from millstream.tui.sse import Event
from tui.played_server import chunk, usage


class Clock:
    """Goes on by what the played answers say."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def answers(clock: Clock, *pieces: tuple[float, dict[str, Any]]) -> Any:
    """A chat whose events come after so many seconds each."""

    async def chat(body: dict[str, Any]) -> AsyncIterator[Event]:
        for seconds, piece in pieces:
            clock.now += seconds
            yield Event("message", json.dumps(piece))

    return chat


async def test_latencies_are_those_of_a_client() -> None:
    clock = Clock()
    chat = answers(
        clock,
        (0.1, chunk(role="assistant")),
        (0.4, chunk(reasoning_content="a")),
        (0.02, chunk(content="b")),
        (0.08, chunk("stop", content="c")),
        (0.1, usage(10, 4)),
    )
    result = await run(chat, Plan(requests=2, concurrency=1), Tally(), clock)
    assert (result.done, result.failed, result.prompt_tokens, result.completion_tokens) == (2, 0, 20, 8)
    assert result.first_token.p50 == pytest.approx(0.5)
    assert (result.inter_token.p50, result.inter_token.p99) == (pytest.approx(0.02), pytest.approx(0.08))
    assert result.whole.p50 == pytest.approx(0.7)
    assert result.seconds == pytest.approx(1.4)
    assert result.tokens_per_second == pytest.approx(8 / 1.4)


async def test_an_answer_that_is_not_whole_counts_as_failed() -> None:
    clock, tally = Clock(), Tally()
    with pytest.raises(ServerError, match="before its answer was whole"):
        await run(answers(clock, (0.1, chunk(content="a"))), Plan(requests=9, concurrency=1), tally, clock)
    assert (tally.done, tally.failed) == (0, 3)  # and then no more was asked


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_measured_values_in_order(values: list[float]) -> None:
    found = percentiles(values)
    assert found.p50 in values
    assert (found.p50 or 0) <= (found.p95 or 0) <= (found.p99 or 0) <= max(values)


def test_percentiles_by_nearest_rank() -> None:
    assert percentiles([float(value) for value in range(1, 101)]) == Percentiles(p50=50, p95=95, p99=99)
    assert percentiles([]) == Percentiles()


def test_prompts_differ() -> None:
    assert len({prompt(number, seed) for number in range(50) for seed in range(3)}) == 150


def test_a_change_says_whether_it_is_better() -> None:
    assert change(110.0, 100.0, more_is_better=True).plain == "+10% better"
    assert change(110.0, 100.0, more_is_better=False).plain == "+10% worse"
    assert change(101.0, 100.0, more_is_better=False).plain == "+1%"
    assert change(1.0, None, more_is_better=True).plain == ""
    assert change(1.0, 0.0, more_is_better=True).plain == ""


def made(plan: Plan, when: float) -> Result:
    return Result(plan=plan, when=when, seconds=2.0, done=1, failed=0)


def test_the_last_run_of_the_same_plan_and_server_is_found(tmp_path: Path) -> None:
    results = Results(tmp_path / "deep" / "bench.json")
    plan, other = Plan(requests=4), Plan(requests=5)
    assert results.last("http://a", plan) is None
    runs = (("http://a", plan, 1.0), ("http://a", plan, 2.0), ("http://a", other, 3.0), ("http://b", plan, 4.0))
    for url, each, when in runs:
        results.add(url, made(each, when))
    assert Results(tmp_path / "deep" / "bench.json").last("http://a", plan) == made(plan, 2.0)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_broken_file_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bench.json"
    path.write_bytes(content)
    assert Results(path).last("http://a", Plan()) is None
    Results(path).add("http://a", made(Plan(), 1.0))
    assert Results(path).last("http://a", Plan()) is not None


def test_no_more_than_some_runs_are_kept(tmp_path: Path) -> None:
    results = Results(tmp_path / "bench.json")
    for when in range(60):
        results.add("http://a", made(Plan(), float(when)))
    assert len(json.loads((tmp_path / "bench.json").read_bytes())) == 50
    assert list(tmp_path.iterdir()) == [tmp_path / "bench.json"]
