"""What the benchmark of `top` asks and counts, and what is kept of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from millstream.bench.http.figures import Limit, figures
from millstream.tui.benchmark import Plan, Result, Tally, run
from millstream.tui.errors import ServerError
from millstream.tui.pages.bench import change
from millstream.tui.results import Results
from tui.played_server import Script, chunk, playing, problem, usage


async def test_it_is_a_run_of_the_http_benchmark_with_prompts_of_its_own(tmp_path: Path) -> None:
    script, tally = Script(), Tally()
    script.answers = [
        [
            chunk(role="assistant"), chunk(reasoning_content="a"), chunk(content="b"), chunk("stop", content="c"),
            usage(10, 4), "[DONE]",
        ]
    ]  # fmt: skip
    async with playing(script) as url:
        plan = Plan(model="one", requests=3, concurrency=2, max_tokens=4)
        results = [await run(url, "sk-1", plan, each) for each in (tally, Tally())]
    figures = results[0].figures
    assert (figures.requests, figures.failed, figures.prompt_tokens, figures.tokens) == (3, 0, 30, 12)
    assert (tally.done, tally.failed, tally.pieces) == (3, 0, 9)
    bodies = [body for _, _, body in script.calls]
    assert {(each["model"], each["max_tokens"], each["ignore_eos"]) for each in bodies} == {("one", 4, True)}
    assert len({each["messages"][0]["content"] for each in bodies}) == 6
    assert {each["authorization"] for each in script.headers} == {"Bearer sk-1"}


async def test_an_answer_that_is_not_whole_counts_as_failed() -> None:
    script, tally = Script(), Tally()
    script.answers = [[chunk(content="a")]]
    async with playing(script) as url:
        with pytest.raises(ServerError, match="the stream has no end"):
            await run(url, None, Plan(model="one", requests=2), tally)
    assert (tally.done, tally.failed, tally.pieces) == (0, 2, 2)


async def test_what_a_server_says_of_itself_is_safe_to_show() -> None:
    script = Script()
    script.refuse["/v1/chat"] = lambda: problem(400, "no \x1b]0;x\x07 [b]such[/b]")
    async with playing(script) as url:
        with pytest.raises(ServerError) as caught:
            await run(url, None, Plan(model="one", requests=1), Tally())
    assert caught.value.message == "no request came to a good end: HTTP 400: no ␛]0;x␇ [b]such[/b]"


def test_a_change_says_whether_it_is_better() -> None:
    assert change(110.0, 100.0, more_is_better=True).plain == "+10% better"
    assert change(110.0, 100.0, more_is_better=False).plain == "+10% worse"
    assert change(101.0, 100.0, more_is_better=False).plain == "+1%"
    assert change(1.0, None, more_is_better=True).plain == ""
    assert change(1.0, 0.0, more_is_better=True).plain == ""


def made(plan: Plan, when: float) -> Result:
    return Result(plan=plan, when=when, figures=figures([], 2.0, Limit()))


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


def test_what_is_no_file_counts_as_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "bench.json")
    assert Results(tmp_path / "bench.json").last("http://a", Plan()) is None
