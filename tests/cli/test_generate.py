"""`run`: an answer on stdout."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.command import Result, millstream
from cli.talk import CTRL_C, PlayedProvider, Script, says
from millstream.ir.deltas import Content, Error, Finish, Reasoning, Usage
from millstream.ir.errors import context_length_exceeded
from millstream.ir.request import ChatRequest, CompletionRequest, Message, Sampling


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.touch()
    return path


def run(
    monkeypatch: pytest.MonkeyPatch, model: Path, script: Script, *args: str, stdin: str | bytes = ""
) -> tuple[Result, PlayedProvider]:
    provider = PlayedProvider(script)
    monkeypatch.setattr("millstream.cli.generate.open_local", provider.opened)
    return millstream("run", *args, "-m", str(model), stdin=stdin), provider


def test_the_answer_goes_to_stdout_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, provider = run(monkeypatch, model, says("Hel", "lo\x1b[2J."), "hi")
    assert result == (0, "Hello\x1b[2J.\n", "")
    assert provider.streams[0].closed
    assert provider.requests == [ChatRequest(model="played", messages=(Message("user", "hi"),))]


def test_a_final_newline_is_not_doubled(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    assert run(monkeypatch, model, says("one\n"), "hi")[0].out == "one\n"


def test_options_reach_the_request(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    options = (
        "-T", "0.5", "--top-k", "40", "--top-p", "0.9", "--min-p", "0.1", "--repetition-penalty", "1.1",
        "--seed", "7", "-n", "5", "--stop", "a", "--stop", "b", "--system", "Be brief.",
    )  # fmt: skip
    _, provider = run(monkeypatch, model, says("x"), "-", *options, stdin="from stdin")
    request = provider.requests[0]
    assert request.messages == (Message("system", "Be brief."), Message("user", "from stdin"))
    assert request.sampling == Sampling(
        temperature=0.5, top_k=40, top_p=0.9, min_p=0.1, repetition_penalty=1.1, seed=7, max_tokens=5, stop=("a", "b")
    )


def test_raw_continues_the_text(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    _, provider = run(monkeypatch, model, says("x"), "Once upon", "--raw")
    assert provider.requests == [CompletionRequest(model="played", prompts=("Once upon",))]


def test_reasoning_and_statistics_go_to_stderr(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    script: Script = [Reasoning("hm "), Content("yes"), Finish("stop", Usage(prompt_tokens=7, completion_tokens=3))]
    result, _ = run(monkeypatch, model, script, "hi", "--stats")
    assert result.out == "yes\n"
    assert result.err.startswith("hm ")
    assert "7 prompt tokens" in result.err
    assert "3 new tokens" in result.err


def test_a_refused_request_is_one_line(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, _ = run(monkeypatch, model, context_length_exceeded(9000, 8192), "hi")
    assert (result.code, result.out) == (1, "")
    assert "8192 tokens" in result.err
    assert result.err.count("\n") == 1


def test_an_error_in_the_stream_ends_what_was_written(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, _ = run(monkeypatch, model, [Content("so far"), Error("the engine died")], "hi")
    assert result == (1, "so far\n", "error: the engine died\n")


def test_input_that_is_not_text(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, provider = run(monkeypatch, model, says("x"), "-", stdin=b"\xff\xfe")
    assert (result.code, result.err) == (1, "error: standard input is not UTF-8 text\n")
    assert provider.requests == []


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, provider = run(monkeypatch, model, [Content("half"), CTRL_C], "hi")
    assert result == (130, "half\n", "")
    assert provider.streams[0].closed
