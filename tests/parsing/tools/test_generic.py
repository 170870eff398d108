"""The prompt for models without a tool template."""

from __future__ import annotations

import json

from millstream.ir.request import Message, ToolCall, ToolChoice
from millstream.parsing.registry import create_parser
from millstream.parsing.tools.generic import render_call, rewrite, system_prompt
from parsing.driver import TOOLS, Call, fold, run


def test_prompt_lists_the_tools_as_json() -> None:
    lines = system_prompt(TOOLS).splitlines()
    listed = [json.loads(line) for line in lines[lines.index("<tools>") + 1 : lines.index("</tools>")]]
    assert [tool["name"] for tool in listed] == [tool.name for tool in TOOLS]
    assert listed[0]["parameters"] == TOOLS[0].parameters
    assert listed[2]["parameters"] == {"type": "object", "properties": {}}


def test_prompt_says_what_was_chosen() -> None:
    prompt = system_prompt(TOOLS, ToolChoice("required", ("get_time",)), parallel=False)
    assert "get_time" in prompt
    assert "get_weather" not in prompt
    assert "You must call" in prompt
    assert "one call at a time" in prompt
    assert "Call a function only if it helps" in system_prompt(TOOLS)


def test_rendered_calls_are_read_back() -> None:
    calls = [ToolCall("1", "get_weather", '{"city": "Zoë \\"x\\""}'), ToolCall("2", "get_time", "")]
    text = "\n".join(map(render_call, calls))
    assert fold(run(create_parser("generic", "none", TOOLS), [text])) == [
        Call("get_weather", '{"city": "Zoë \\"x\\""}'),
        Call("get_time", "{}"),
    ]
    assert json.loads(render_call(ToolCall("3", "f", "not json")).splitlines()[1]) == {
        "name": "f",
        "arguments": "not json",
    }


def test_rewrite() -> None:
    conversation = [
        Message("system", "Be brief."),
        Message("user", "Weather?"),
        Message("assistant", "Looking.", tool_calls=(ToolCall("1", "get_time", "{}"), ToolCall("2", "get_time", "{}"))),
        Message("tool", "noon", tool_call_id="1"),
        Message("tool", "dusk", tool_call_id="2"),
        Message("user", "And?"),
    ]
    out = rewrite(conversation, TOOLS)
    assert [message.role for message in out] == ["system", "user", "assistant", "user", "user"]
    assert out[0].content.startswith("Be brief.\n\n# Tools")
    assert out[2].content.startswith("Looking.\n<tool_call>")
    assert out[2].content.count("<tool_call>") == 2
    assert not out[2].tool_calls
    assert out[3].content == "<tool_response>\nnoon\n</tool_response>\n<tool_response>\ndusk\n</tool_response>"
    assert out[4] == conversation[5]


def test_rewrite_without_tools_or_system() -> None:
    question = [Message("user", "Hi")]
    assert rewrite(question, ()) == question
    assert rewrite(question, TOOLS)[0].role == "system"
