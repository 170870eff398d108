"""Coding agents complete a turn with a real model, as `make agents REAL=1` does.

What a model of half a billion parameters says is not to be tested; that the whole way from the agent's request to its
last line works with it is. The agents' own prompts take a small machine minutes to read, and small models do nothing
sensible with them: here each has a short prompt and one tool.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from programs import BRIEF, Place, Program, run

from support.real_models import QWEN, real_model
from support.served import Served, serve

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not os.environ.get("MILLSTREAM_AGENTS_REAL"), reason="make agents REAL=1"),
]

MODEL = "qwen2.5-coder"
ANSWER_TOKENS = 64
SECONDS = 240


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(real_model(QWEN), "--model-name", MODEL, "--max-batch", "2", "--ctx", "8192") as server:
        yield server


def counted(served: Served, name: str) -> int:
    """A counter of the server, over all its labels."""
    text = httpx.get(f"{served.url}/metrics", timeout=30, trust_env=False).text
    values = re.findall(rf"^millstream_{name}_total(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return int(sum(map(float, values)))


@pytest.mark.parametrize("program", BRIEF, ids=lambda program: program.name)
def test_the_turn_completes(program: Program, served: Served, binaries: Path, scratch: Path) -> None:
    place = Place(served.url, MODEL, scratch / "home", scratch / "work", answer=ANSWER_TOKENS)
    before = {name: counted(served, name) for name in ("prompt_tokens", "generated_tokens")}
    try:
        ended = run(program, binaries, place, "Say hello.", seconds=SECONDS)
    except subprocess.TimeoutExpired:
        done = {name: counted(served, name) - count for name, count in before.items()}
        pytest.fail(f"{program.name} did not end within {SECONDS} s; meanwhile the server had {done}")
    assert ended.code == 0, f"{ended.output}\n{ended.errors[-3000:]}"
    assert ended.output.strip(), ended.errors[-3000:]
    assert counted(served, "prompt_tokens") > before["prompt_tokens"]
    assert counted(served, "generated_tokens") > before["generated_tokens"]
    assert served.wait_idle()["status"] == "ready"
