"""The self-test holds for a sound model, and each of its checks finds what breaks its law."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from millstream.cli.app import app
from millstream.ir.deltas import Content, Delta, Error, Finish, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.selftest import laws
from millstream.selftest.laws import Broken
from millstream.selftest.readers import Called, Said
from support.tiny_models import build_tiny_model

GOOD: list[Delta] = [
    Start(3),
    Content("a", token_ids=(1,)),
    ToolCallStart(0, "c", "f", token_ids=(2,)),
    ToolCallArgs(0, '{"x": 1}', token_ids=(3,)),
    Finish("tool_calls", Usage(3, 4), token_ids=(4,)),
]


CUT = Finish("length", Usage(3, 4))


def test_a_tiny_model_obeys(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "tiny.gguf")
    result = CliRunner().invoke(app, ["selftest", str(model), "--json", "--threads", "1"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["ok"] is True
    assert [one["law"] for one in report["results"]] == ["1", "2", "2", "2", "3", "4"]
    assert all(one["cases"] > 0 and one["failure"] is None for one in report["results"])
    assert report["formats"] == {"tools": "generic", "reasoning": "none"}


def test_good_streams_pass() -> None:
    laws.check_one_end(GOOD)
    laws.check_partition(GOOD, GOOD)
    laws.check_conservation(GOOD, [1, 2, 3, 4], "a")
    laws.check_surfaces_agree({name: laws.check_surface(name, GOOD) for name in laws.WIRES})


@pytest.mark.parametrize("deltas", [GOOD[:-1], [*GOOD, GOOD[-1]], GOOD[1:], [Start(3), Error("broken")]])
def test_ends(deltas: list[Delta]) -> None:
    with pytest.raises(Broken):
        laws.check_one_end(deltas)


def test_partitions() -> None:
    with pytest.raises(Broken):
        laws.check_partition(GOOD, [GOOD[0], Content("b", token_ids=(1,)), *GOOD[2:]])


@pytest.mark.parametrize(("tokens", "text"), [([1, 2, 4, 3], "a"), ([1, 2, 3, 4], "ab")])
def test_conservation(tokens: list[int], text: str) -> None:
    with pytest.raises(Broken):
        laws.check_conservation(GOOD, tokens, text)


def test_usage_counts_the_ids() -> None:
    with pytest.raises(Broken, match="usage"):
        laws.check_conservation([Start(3), Finish("stop", Usage(3, 2), token_ids=(1,))], [1, 2], None)


SAID = Said("a", "b", (Called("c1", "f", '{"x": [1, 2]}'),), "tool_calls", (3, 1, 4, 1))
EVERYWHERE = {
    "chat": SAID,
    "responses": SAID,
    "messages": replace(SAID, calls=(Called("c1", "f", {"x": [1, 2]}),)),
    "completions": replace(SAID, text="ab", reasoning="", calls=(), end="stop"),
}


def test_arguments_are_the_same_as_text_and_as_an_object() -> None:
    laws.check_surfaces_agree(EVERYWHERE)


CALL = SAID.calls[0]


@pytest.mark.parametrize(
    ("surface", "wrong"),
    [
        ("messages", replace(SAID, text="b")),
        ("messages", replace(SAID, reasoning="")),
        ("messages", replace(SAID, end="stop")),
        ("messages", replace(SAID, usage=(3, 1, 5, 1))),
        ("messages", replace(SAID, usage=None)),
        ("messages", replace(SAID, calls=())),
        ("messages", replace(SAID, calls=(CALL, CALL))),
        ("messages", replace(SAID, calls=(replace(CALL, arguments={"x": [2, 1]}),))),
        ("messages", replace(SAID, calls=(replace(CALL, id="c2", arguments={"x": [1, 2]}),))),
        ("responses", replace(SAID, calls=(replace(CALL, id=""),))),
        ("responses", replace(SAID, calls=(replace(CALL, name="g"),))),
        ("responses", replace(SAID, calls=(replace(CALL, arguments='{"x":[1,2]}'),))),
        ("completions", replace(EVERYWHERE["completions"], text="a")),
        ("completions", replace(EVERYWHERE["completions"], end="length")),
        ("completions", replace(EVERYWHERE["completions"], usage=(3, 0, 4, 1))),
    ],
)
def test_surfaces_that_differ(surface: str, wrong: Said) -> None:
    with pytest.raises(Broken, match=surface):
        laws.check_surfaces_agree(EVERYWHERE | {surface: wrong})


@pytest.mark.parametrize("calls", [(replace(CALL, id=""),), (CALL, CALL)])
def test_calls_need_ids_of_their_own(calls: tuple[Called, ...]) -> None:
    same = replace(SAID, calls=calls)
    with pytest.raises(Broken, match="id of their own"):
        laws.check_surfaces_agree({**EVERYWHERE, "chat": same, "responses": same, "messages": same})


def test_a_stream_that_tells_another_answer_than_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    surface, options, _, read_whole = laws.WIRES["chat"]
    read = lambda raw: replace(laws.readers.read_chat(raw), usage=(0, 0, 0, 0))  # noqa: E731
    monkeypatch.setitem(laws.WIRES, "chat", (surface, options, read, read_whole))
    with pytest.raises(Broken, match="usage streamed"):
        laws.check_surface("chat", GOOD)


def test_arguments_that_were_cut_agree_as_far_as_they_go() -> None:
    cut: list[Delta] = [Start(3), ToolCallStart(0, "c", "f"), ToolCallArgs(0, '{"x": 1, "y": "ab'), CUT]
    laws.check_surfaces_agree({name: laws.check_surface(name, cut) for name in laws.WIRES})


def test_an_illegal_stream() -> None:
    with pytest.raises(Broken, match="chat"):
        laws.check_surface("chat", [*GOOD[:-1], GOOD[-1], Content("late")])
