"""The self-test holds for a sound model, and each of its checks finds what breaks its law."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.cli.app import app
from millstream.ir.deltas import Content, Delta, Error, Finish, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.selftest import laws
from millstream.selftest.laws import Broken
from millstream.selftest.readers import Said
from support.tiny_models import build_tiny_model

GOOD: list[Delta] = [
    Start(3),
    Content("a", token_ids=(1,)),
    ToolCallStart(0, "c", "f", token_ids=(2,)),
    ToolCallArgs(0, '{"x": 1}', token_ids=(3,)),
    Finish("tool_calls", Usage(3, 4), token_ids=(4,)),
]


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


def test_surfaces_that_differ() -> None:
    said = dict.fromkeys(laws.WIRES, Said("a", "", (), "stop"))
    with pytest.raises(Broken):
        laws.check_surfaces_agree(said | {"messages": Said("b", "", (), "end_turn")})


def test_an_illegal_stream() -> None:
    with pytest.raises(Broken, match="chat"):
        laws.check_surface("chat", [*GOOD[:-1], GOOD[-1], Content("late")])
