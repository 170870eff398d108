"""Each coding agent completes a turn with a real model, as `make agents REAL=1` does.

What a model of half a billion parameters says to such prompts is not to be tested; that the turn ends well is. Reading
a prompt of 6,000 to 14,000 tokens takes minutes on a small machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import PROGRAMS, Place, Program, run

from support.real_models import QWEN, real_model
from support.served import Served, serve

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not os.environ.get("MILLSTREAM_AGENTS_REAL"), reason="takes long: make agents REAL=1"),
]

MODEL = "qwen2.5-coder"
ANSWER_TOKENS = 32
SECONDS = 3600


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(real_model(QWEN), "--name", MODEL, "--max-batch", "4", "--ctx", "32768") as server:
        yield server


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_turn_completes(program: Program, served: Served, binaries: Path, scratch: Path) -> None:
    place = Place(served.url, MODEL, scratch / "home", scratch / "work", answer=ANSWER_TOKENS)
    ended = run(program, binaries, place, "Say hello in one word. Do not use any tool.", seconds=SECONDS)
    assert ended.code == 0, f"{ended.output}\n{ended.errors[-3000:]}"
    assert ended.output.strip(), ended.errors[-3000:]
    assert served.wait_idle()["status"] == "ok"
