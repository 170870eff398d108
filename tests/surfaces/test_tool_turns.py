"""What coding agents send after two calls at once: both calls and both results are read, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millstream.ir.request import ChatRequest
from millstream.surfaces import anthropic_messages, openai_chat, responses
from millstream.surfaces.wire import Call

CAPTURES = Path(__file__).parent / "captures" / "tools"
DECODERS = {
    "codex": responses.decode,
    "claude": anthropic_messages.decode,
    "opencode": openai_chat.decode,
    "qwen": openai_chat.decode,
}


@pytest.mark.parametrize("name", DECODERS)
def test_both_calls_and_both_results_are_read(name: str) -> None:
    call: Call = DECODERS[name]((CAPTURES / f"{name}.json").read_bytes())
    request = call.request
    assert isinstance(request, ChatRequest)
    turns = request.messages
    (at,) = [k for k, turn in enumerate(turns) if turn.tool_calls]
    calls, results = turns[at].tool_calls, turns[at + 1 : at + 3]
    assert turns[at].role == "assistant"
    assert turns[at].content == "I look into it."
    assert [turn.role for turn in results] == ["tool", "tool"]
    assert [turn.tool_call_id for turn in results] == [each.id for each in calls]
    assert {each.name for each in calls} <= {tool.name for tool in request.tools}
    for k, (each, result) in enumerate(zip(calls, results, strict=True)):
        assert f"file-{k}.txt" in each.arguments
        assert re.search(r"secret-[0-9a-f]{16}", result.content)
