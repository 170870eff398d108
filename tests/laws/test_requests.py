"""Requests that servers are known to stumble over, in the words of every chat surface."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.engine.protocol import TokenRequest
from millstream.engine.scripted import Step, script
from support.conversation import SCHEMA, SURFACES, Played, body
from support.scripted_model import EOS

EVERYWHERE = pytest.mark.parametrize("surface", SURFACES)
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True])
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "é€"}}</tool_call>'


def playing(*said: str) -> Played:
    """An app whose model says one of these texts in each choice."""
    played = Played()

    def plan(request: TokenRequest) -> list[Step]:
        tokens = played.tokenizer.encode(said[request.choice % len(said)])
        return list(script(request, [*tokens, EOS]))

    played.plan = plan
    return played


def prompt_of(played: Played) -> str:
    """What the engine was asked to continue."""
    (request,) = played.engine.requests
    return b"".join(map(played.tokenizer.token_bytes, request.prompt)).decode()


@EVERYWHERE
@BOTH_WAYS
async def test_a_prompt_beyond_the_window_is_a_400_with_both_numbers(surface: str, stream: bool) -> None:
    played = playing("a")
    answer = await played.post(surface, body(surface, stream=stream, text="x" * 9000))
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert "8192" in error["message"] or "8191" in error["message"]
    assert "90" in error["message"]
    if surface != "messages":
        param = {"chat": "messages", "responses": "input"}[surface]
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)
    assert played.engine.requests == []


@EVERYWHERE
@BOTH_WAYS
async def test_a_limit_beyond_the_window_ends_at_the_window(surface: str, stream: bool) -> None:
    played = playing("a" * 9000)
    seen = await played.ask(surface, stream=stream, max_tokens=100_000)
    assert seen.finish == "length"
    assert seen.usage is not None
    assert seen.usage[0] + seen.usage[1] == 8192


@EVERYWHERE
@pytest.mark.parametrize("empty", [[], None], ids=["empty", "null"])
async def test_no_conversation_is_a_400_that_names_it(surface: str, empty: Any) -> None:
    field = "input" if surface == "responses" else "messages"
    answer = await playing("a").post(surface, {**body(surface), field: empty})
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]


@EVERYWHERE
async def test_null_is_absent(surface: str) -> None:
    optional = {
        "chat": ("tools", "tool_choice", "stop", "metadata", "max_completion_tokens", "response_format", "n", "seed"),
        "responses": ("tools", "tool_choice", "metadata", "max_output_tokens", "text", "reasoning", "instructions"),
        "messages": ("tools", "tool_choice", "stop_sequences", "metadata", "system", "thinking", "temperature"),
    }
    wire = {**body(surface), **dict.fromkeys(optional[surface])}
    answer = await playing("a").post(surface, wire)
    assert answer.status_code == 200, answer.text


HISTORY: dict[str, Any] = {
    "chat": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "on"}, {"type": "text", "text": "e"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "noon"}]},
    ],
    "responses": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
        {"type": "function_call", "call_id": "c1", "name": "get_time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "noon"}]},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "get_time", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "noon"}]},
            ],
        },
    ],
}


@EVERYWHERE
@BOTH_WAYS
async def test_a_history_with_a_call_reaches_the_model_whole(surface: str, stream: bool) -> None:
    """Null content is no text, a developer speaks as the system, first; parts are joined; the answer's own call stays
    out of the text although the history has one."""
    played = playing(CALL)
    wire = body(surface, stream=stream, tools=True, tool_choice="auto")
    wire["input" if surface == "responses" else "messages"] = HISTORY[surface]
    if surface == "messages":
        wire["system"] = "Be brief."
    answer = await played.post(surface, wire)
    assert answer.status_code == 200, answer.text
    prompt = prompt_of(played)
    assert "None" not in prompt
    places = [prompt.index(text) for text in ("Be brief.", "one", "noon")]
    assert places == sorted(places)
    assert b"tool_call>" not in answer.content
    assert "get_weather" in answer.text


async def test_choices_with_reasoning_and_calls_do_not_mix() -> None:
    """Every choice has a parser of its own, and the prompt is counted once."""
    said = (f"<think>first</think>one{CALL}", "<think>second</think>two", f"three{CALL}{CALL}")
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
    wire = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "n": 3, "tools": tools}
    played = playing(*said)
    answer = (await played.post("chat", wire)).json()
    messages = [choice["message"] for choice in answer["choices"]]
    assert [message["content"] for message in messages] == ["one", "two", "three"]
    assert [message.get("reasoning_content") for message in messages] == ["first", "second", None]
    assert [len(message.get("tool_calls", ())) for message in messages] == [1, 0, 2]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["tool_calls", "stop", "tool_calls"]
    assert answer["usage"]["prompt_tokens"] == len(played.engine.requests[0].prompt)


BAD = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}


def wire_tool(surface: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    if surface == "messages":
        return {"name": name, "input_schema": schema, "strict": True}
    function = {"name": name, "parameters": schema, "strict": True}
    return {"type": "function", **({"function": function} if surface == "chat" else function)}


LEFT_OUT = {
    "responses": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}],
    "messages": [
        {"type": "web_search_20250305", "name": "web_search"},
        {"name": "later", "input_schema": SCHEMA, "defer_loading": True},
    ],
    "chat": [],
}


@EVERYWHERE
@BOTH_WAYS
async def test_a_schema_at_fault_is_named_as_the_client_sent_it(surface: str, stream: bool) -> None:
    """What is left out of the prompt counts all the same."""
    wire = body(surface, stream=stream)
    good = wire_tool(surface, "good", SCHEMA)
    wire["tools"] = [*LEFT_OUT[surface], good, wire_tool(surface, "bad", BAD)]
    answer = await playing("a").post(surface, wire)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    path = f"tools[{len(LEFT_OUT[surface]) + 1}]"
    assert error["message"].startswith(f"{path}: the parameters of 'bad'")
    assert error.get("param", path) == path


async def test_a_schema_at_fault_in_a_namespace_is_named_by_its_place_there() -> None:
    wire = body("responses")
    inner = [wire_tool("responses", "good", SCHEMA), wire_tool("responses", "bad", BAD)]
    wire["tools"] = [{"type": "namespace", "name": "ns", "tools": inner}, wire_tool("responses", "last", SCHEMA)]
    error = (await playing("a").post("responses", wire)).json()["error"]
    assert error["param"] == "tools[0].tools[1]"
    assert error["message"].startswith("tools[0].tools[1]: ")


RESULTS: dict[str, list[Any]] = {
    "chat": [{"role": "tool", "tool_call_id": name, "content": f"of {name}"} for name in ("c2", "c1")],
    "responses": [{"type": "function_call_output", "call_id": name, "output": f"of {name}"} for name in ("c2", "c1")],
    "messages": [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": name, "content": f"of {name}"} for name in ("c2", "c1")],
        }
    ],
}
CALLS: dict[str, list[Any]] = {
    "chat": [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": name, "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
                for name in ("c1", "c2")
            ],
        }
    ],
    "responses": [
        {"type": "function_call", "call_id": name, "name": "get_time", "arguments": "{}"} for name in ("c1", "c2")
    ],
    "messages": [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": name, "name": "get_time", "input": {}} for name in ("c1", "c2")],
        }
    ],
}


@EVERYWHERE
async def test_results_reach_the_model_in_the_order_of_their_calls(surface: str) -> None:
    """Clients that run calls at once send what is ready first; a template without ids tells results by their order."""
    played = playing("a")
    wire = body(surface, tools=True, tool_choice="auto")
    question = [{"role": "user", "content": "one"}]
    wire["input" if surface == "responses" else "messages"] = [*question, *CALLS[surface], *RESULTS[surface]]
    answer = await played.post(surface, wire)
    assert answer.status_code == 200, answer.text
    prompt = prompt_of(played)
    assert prompt.index("of c1") < prompt.index("of c2")
