"""The golden traces; `support.traces` says how they are read and written."""

from __future__ import annotations

import pytest

from scheduler.scenarios import SCENARIOS
from support.traces import FOLDER, text_of


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_trace_is_as_it_was(name: str) -> None:
    assert text_of(SCENARIOS[name]) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_every_trace_has_its_scenario() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SCENARIOS)
