"""What opencode and Qwen Code send, from the body to the prompt that a Qwen model reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.ir.request import ChatRequest
from millstream.models.assets import ModelAssets, open_model
from millstream.pipeline.dialect import Dialect
from millstream.surfaces import openai_chat
from support.real_models import QWEN, real_model

CAPTURES = sorted((Path(__file__).parent.parent / "clients").glob("*.json"))


def body(path: Path) -> dict[str, Any]:
    wire: dict[str, Any] = json.loads(path.read_text())["body"]
    return wire


@pytest.fixture(scope="module")
def qwen() -> ModelAssets:
    return open_model(real_model(QWEN))


def test_there_are_captures() -> None:
    assert len(CAPTURES) == 5


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_every_field_is_read(path: Path) -> None:
    wire = body(path)
    call = openai_chat.decode(json.dumps(wire).encode())
    assert isinstance(call.request, ChatRequest)
    assert call.options.stream
    assert call.options.usage
    assert [message.role for message in call.request.messages] == [message["role"] for message in wire["messages"]]
    declared = [tool["function"] for tool in wire.get("tools", [])]
    assert [(tool.name, tool.parameters) for tool in call.request.tools] == [
        (tool["name"], tool.get("parameters")) for tool in declared
    ]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_the_prompt_has_every_tool_and_message(path: Path, qwen: ModelAssets) -> None:
    request = openai_chat.decode(json.dumps(body(path)).encode()).request
    assert isinstance(request, ChatRequest)
    dialect = Dialect(qwen.template, qwen.tokenizer)
    turn = dialect.turn(request)
    assert dialect.tool_format == "hermes"
    assert turn.prompt.endswith("<|im_start|>assistant\n")
    assert turn.grammar is None
    for message in request.messages:
        assert message.content in turn.prompt
    for tool in request.tools:
        assert json.dumps(tool.name) in turn.prompt
    assert (turn.parser is None) == (not request.tools)
