"""Each coding agent completes its turn against a live server whose model is played.

Everything is real but the weights: the HTTP server, the surfaces, the tokenizer and template of a Qwen model, its tool
parser. So is the tool: the agent reads a file of which the model does not know the content, and the model's answer
quotes what came back.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import PROGRAMS, Ended, Place, Program, run

from millstream.models.assets import ModelAssets, open_model
from support.live import Live, serving
from support.played import Writer, played
from support.real_models import QWEN, real_model

pytestmark = pytest.mark.agents

MODEL = "qwen2.5-coder"
END = "<|im_end|>"
SECONDS = 240
SECRET = re.compile(r"secret-[0-9a-f]{16}")


@pytest.fixture(scope="module")
def qwen() -> ModelAssets:
    return open_model(real_model(QWEN))


@contextmanager
def playing(qwen: ModelAssets, write: Writer) -> Iterator[tuple[Live, list[str]]]:
    provider, _, prompts = played(write, name=MODEL, tokenizer=qwen.tokenizer, template=qwen.template)
    with serving(provider) as live:
        yield live, prompts


def told(ended: Ended, prompts: list[str]) -> str:
    """What a failed test shows."""
    last = prompts[-1][-1500:] if prompts else "(no request came)"
    return f"exit {ended.code}\n--- stdout\n{ended.output}\n--- stderr\n{ended.errors[-3000:]}\n--- last prompt\n{last}"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_plain_answer_is_printed(program: Program, qwen: ModelAssets, binaries: Path, scratch: Path) -> None:
    word = f"hello-{secrets.token_hex(8)}"
    with playing(qwen, lambda prompt: f"{word} from the mill.{END}") as (live, prompts):
        place = Place(live.url, MODEL, scratch / "home", scratch / "work")
        ended = run(program, binaries, place, "Say hello.", seconds=SECONDS)
    assert ended.code == 0, told(ended, prompts)
    assert f"{word} from the mill." in ended.output, told(ended, prompts)
    assert any("Say hello." in prompt for prompt in prompts)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_tool_is_run_and_its_result_comes_back(
    program: Program, qwen: ModelAssets, binaries: Path, scratch: Path
) -> None:
    place_of_secret = scratch / "work" / "secret.txt"
    place_of_secret.parent.mkdir()
    secret = f"secret-{secrets.token_hex(8)}"
    place_of_secret.write_text(f"{secret}\n")
    tool, arguments = program.reading(place_of_secret)

    def write(prompt: str) -> str:
        if f'"name": "{tool}"' not in prompt:
            return f"Reading a file{END}"
        _, response, result = prompt.rpartition("<tool_response>")
        found = SECRET.search(result) if response else None
        if found:
            return f"The file holds {found[0]}.{END}"
        if response:
            return f"It cannot be read.{END}"
        call = json.dumps({"name": tool, "arguments": arguments})
        return f"I look into it.\n<tool_call>\n{call}\n</tool_call>{END}"

    with playing(qwen, write) as (live, prompts):
        place = Place(live.url, MODEL, scratch / "home", scratch / "work")
        ended = run(program, binaries, place, "What does secret.txt hold?", seconds=SECONDS)
    assert ended.code == 0, told(ended, prompts)
    assert f"The file holds {secret}." in ended.output, told(ended, prompts)
