"""`chat`: turns, commands, and answers that are stopped."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import typer
from typer.core import TyperGroup

from cli.command import Result, millstream
from cli.talk import CTRL_C, PlayedProvider, Script, says
from millstream.cli.app import app
from millstream.cli.configuration.options import commands_of
from millstream.ir.deltas import Content
from millstream.ir.errors import overloaded
from millstream.ir.request import Message

ROOT = cast(TyperGroup, typer.main.get_command(app))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.touch()
    return path


def talk(
    monkeypatch: pytest.MonkeyPatch, model: Path, lines: str, *scripts: Script, args: tuple[str, ...] = ()
) -> tuple[Result, PlayedProvider]:
    provider = PlayedProvider(*scripts)
    monkeypatch.setattr("millstream.cli.chat.open_local", provider.opened)
    return millstream("chat", "-m", str(model), *args, stdin=lines), provider


def asked(provider: PlayedProvider, index: int) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in provider.requests[index].messages]


def test_each_turn_sees_the_conversation(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, provider = talk(monkeypatch, model, "one\n\ntwo\n", says("first"), says("se", "cond"))
    assert result == (0, "first\nsecond\n", "")
    assert asked(provider, 0) == [("user", "one")]
    assert asked(provider, 1) == [("user", "one"), ("assistant", "first"), ("user", "two")]


def test_system_and_reset_start_anew(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    lines = "one\n/system Be brief.\ntwo\n/reset\nthree\n/system\nfour\n"
    _, provider = talk(monkeypatch, model, lines, *[says("x")] * 4, args=("--system", "Rhyme."))
    assert asked(provider, 0) == [("system", "Rhyme."), ("user", "one")]
    assert asked(provider, 1) == [("system", "Be brief."), ("user", "two")]
    assert asked(provider, 2) == [("system", "Be brief."), ("user", "three")]
    assert asked(provider, 3) == [("user", "four")]


def test_set_changes_sampling_and_refuses_what_is_no_value(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    lines = "/set temperature 0.5\n/set top-k 3\n/set seed x\n/set colour 1\nhi\n"
    result, provider = talk(monkeypatch, model, lines, says("x"))
    sampling = provider.requests[0].sampling
    assert (sampling.temperature, sampling.top_k, sampling.seed) == (0.5, 3, None)
    assert "no value for seed" in result.err
    assert "no option colour" in result.err


@pytest.mark.parametrize(
    ("written", "stop", "told"),
    [
        ("X", ("X",), '(stop = ["X"])'),
        ("the end ", ("the end",), '(stop = ["the end"])'),
        ("[INST]", ("[INST]",), '(stop = ["[INST]"])'),
        (r'"\n\n"', ("\n\n",), r'(stop = ["\n\n"])'),
        ('["a", "b"]', ("a", "b"), '(stop = ["a","b"])'),
        ("42", ("42",), '(stop = ["42"])'),
        ("", (), "(stop is not set)"),
        ('""', ("begin",), "stop: strings must not be empty."),
    ],
)
def test_set_changes_stop_strings(
    monkeypatch: pytest.MonkeyPatch, model: Path, written: str, stop: tuple[str, ...], told: str
) -> None:
    result, provider = talk(monkeypatch, model, f"/set stop {written}\nhi\n", says("x"), args=("--stop", "begin"))
    assert provider.requests[0].sampling.stop == stop
    assert told in result.err


def test_set_without_a_value_goes_back_to_the_default(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    lines = "/set seed 3\n/set seed\n/set top-p\n/set min-p 0.5\nhi\n"
    args = ("--top-p", "0.5", "--stop", "END", "--max-tokens", "7")
    result, provider = talk(monkeypatch, model, lines, says("x"), args=args)
    sampling = provider.requests[0].sampling
    assert (sampling.seed, sampling.top_p, sampling.min_p, sampling.stop) == (None, 1.0, 0.5, ("END",))
    assert sampling.max_tokens == 7
    assert "(seed is not set)" in result.err


def test_set_knows_every_option_of_sampling(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    (command,) = (command for path, command in commands_of(ROOT) if path == ("chat",))
    panel = {option.name for option in command.params if getattr(option, "rich_help_panel", "") == "Sampling"}
    assert panel
    result, _ = talk(monkeypatch, model, "/help\n" + "".join(f"/set {name} 1\n" for name in sorted(panel)))
    assert "no option" not in result.err
    for name in panel:
        assert name in result.err.split("/set knows")[1].split(".")[0]
    assert "--kv-cache" in result.err


def test_retry_asks_again(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, provider = talk(monkeypatch, model, "/retry\none\n/retry\n", says("first"), says("other"))
    assert asked(provider, 1) == [("user", "one")]
    assert result.out == "first\nother\n"
    assert "nothing to answer" in result.err


def test_several_lines_are_one_message(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    _, provider = talk(monkeypatch, model, '"""one\n/two\nthree"""\n', says("x"))
    assert asked(provider, 0) == [("user", "one\n/two\nthree")]


def test_quit_leaves(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, provider = talk(monkeypatch, model, "/help\n/nonsense\n/quit\nnever\n")
    assert result.code == 0
    assert "/retry" in result.err
    assert "no command /nonsense" in result.err
    assert provider.requests == []


def test_a_failure_ends_a_chat_that_nobody_watches(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, _ = talk(monkeypatch, model, "hi\n", overloaded("the queue is full", retry_after=1))
    assert result == (1, "", "error: the queue is full\n")


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    result, provider = talk(monkeypatch, model, "one\ntwo\n", [Content("half"), CTRL_C], says("rest"))
    assert result == (0, "half\nrest\n", "(stopped)\n")
    assert provider.streams[0].closed
    assert provider.requests[1].messages == (
        Message("user", "one"),
        Message("assistant", "half"),
        Message("user", "two"),
    )
