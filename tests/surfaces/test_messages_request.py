"""Messages bodies: what is read from them, and what is refused and how it is named."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsBase as BetaParams
from anthropic.types.message_count_tokens_params import MessageCountTokensParams as CountParams
from anthropic.types.message_create_params import MessageCreateParamsBase as Params
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.errors import ApiError
from millstream.ir.request import ChatRequest, Message, ResponseFormat, Tool, ToolCall, ToolChoice
from millstream.surfaces import anthropic_messages as messages
from millstream.surfaces.anthropic_common import signature
from millstream.surfaces.anthropic_fields import MESSAGES_FIELDS
from millstream.surfaces.anthropic_request import MessagesBody
from millstream.surfaces.api_page import PRINTED
from millstream.surfaces.fields import markdown_table
from millstream.surfaces.wire import Call

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"
CAPTURES = sorted((Path(__file__).parent / "captures").glob("claude-*.json"))
USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = {"name": "add", "description": "adds", "input_schema": SCHEMA}
SUB = {"name": "sub", "input_schema": SCHEMA, "type": "custom"}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}


def decode(**fields: Any) -> Call:
    return messages.decode(json.dumps({"model": "m", "max_tokens": 9, "messages": [USER], **fields}).encode())


def read(**fields: Any) -> ChatRequest:
    request = decode(**fields).request
    assert isinstance(request, ChatRequest)
    return request


def turns(*wire: dict[str, Any], **fields: Any) -> tuple[Message, ...]:
    return read(messages=list(wire), **fields).messages


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        decode(**fields)
    assert caught.value.status == 400
    return caught.value


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_what_claude_code_sends_is_accepted(path: Path) -> None:
    capture = json.loads(path.read_text())
    body = capture["body"]
    call = messages.decode(json.dumps(body).encode())
    request = call.request
    assert isinstance(request, ChatRequest)
    assert request.messages[0].role == "system"
    roles = [message["role"] for message in body["messages"]]
    assert [turn.role for turn in request.messages[1:]] == roles
    deferred = {tool["name"] for tool in body["tools"] if tool.get("defer_loading")}
    assert {tool.name for tool in request.tools} == {tool["name"] for tool in body["tools"]} - deferred
    assert request.sampling.max_tokens == body["max_tokens"]
    assert request.template_kwargs["reasoning_effort"] == "high"
    assert (call.options.stream, call.options.hide_reasoning, call.warnings) == (True, True, ())
    counted = messages.decode_count(json.dumps(body).encode()).request
    assert isinstance(counted, ChatRequest)
    assert (counted.messages, counted.tools) == (request.messages, request.tools)


def test_captures_are_there() -> None:
    assert len(CAPTURES) == 4


@pytest.mark.parametrize("params", [Params, BetaParams, CountParams])
def test_every_field_of_anthropic_is_decided(params: type) -> None:
    assert set(params.__annotations__) - set(MESSAGES_FIELDS) == set()


def test_what_is_said_to_be_honoured_is_read() -> None:
    honoured = {name for name, field in MESSAGES_FIELDS.items() if field.status == "honoured"}
    assert honoured == set(MessagesBody.__struct_fields__)


@pytest.mark.parametrize("name", PRINTED)
def test_the_api_page_prints_the_table(name: str) -> None:
    wanted = f"<!-- {name} -->\n{markdown_table(PRINTED[name])}<!-- end -->"
    assert wanted in API_PAGE.read_text(), "run: python -m millstream.surfaces.api_page docs/api.md"


def test_the_smallest_request_changes_nothing() -> None:
    request = read()
    assert request.messages == (Message("user", "hi"),)
    assert request.template_kwargs == {}
    assert request.sampling.temperature == 1
    assert request == ChatRequest(model="m", messages=request.messages, sampling=request.sampling)


def test_null_is_absent() -> None:
    nulls = {name: None for name in MESSAGES_FIELDS if name not in ("model", "messages", "max_tokens")}
    assert read(**nulls) == read()


@pytest.mark.parametrize(
    ("system", "content"),
    [
        ("Be brief.", "Be brief."),
        ([text("A"), text("B")], "A\n\nB"),
        ([text("x-anthropic-billing-header: cc=1; nonce=abc"), text("B")], "B"),
        ([text("x-anthropic-billing-header: cc=1\nB"), text("C")], "B\n\nC"),
        ("x-anthropic-a: 1\nx-anthropic-b: 2\nB\nx-anthropic-c: 3", "B\nx-anthropic-c: 3"),
        ("x-anthropic-a: 1", None),
        ([], None),
        ("", None),
    ],
)
def test_system(system: Any, content: str | None) -> None:
    wanted = () if content is None else (Message("system", content),)
    assert read(system=system).messages == (*wanted, Message("user", "hi"))


def test_a_conversation_with_tools() -> None:
    assistant = [
        {"type": "thinking", "thinking": "hm", "signature": "anything"},
        {"type": "redacted_thinking", "data": "x"},
        text("I will"),
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "t2", "name": "sub", "input": {}},
        text(" look."),
    ]
    results = [
        text("and?"),
        {"type": "tool_result", "tool_use_id": "t1", "content": [text("2"), text("3")]},
        {"type": "tool_result", "tool_use_id": "t2", "content": "broken", "is_error": True},
        {"type": "tool_result", "tool_use_id": "t3"},
    ]
    wire = [USER, {"role": "assistant", "content": assistant}, {"role": "user", "content": results}]
    calls = (ToolCall("t1", "add", '{"a": 1}'), ToolCall("t2", "sub", "{}"))
    assert turns(*wire, tools=[ADD, SUB]) == (
        Message("user", "hi"),
        Message("assistant", "I will look.", reasoning="hm", tool_calls=calls),
        Message("tool", "2\n\n3", tool_call_id="t1"),
        Message("tool", "[tool error]\nbroken", tool_call_id="t2"),
        Message("tool", "", tool_call_id="t3"),
        Message("user", "and?"),
    )


def test_hidden_thinking_comes_back() -> None:
    block = {"type": "thinking", "thinking": "", "signature": signature("secret", carried=True)}
    assert turns(USER, {"role": "assistant", "content": [block]}, USER)[1].reasoning == "secret"
    foreign = {"type": "thinking", "thinking": "", "signature": "EqQBCgIYAhIM"}
    assert turns(USER, {"role": "assistant", "content": [foreign]}, USER)[1].reasoning is None


def test_neighbours_of_one_role_become_one_turn() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    assistants = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": [call]}]
    assert turns(USER, USER, *assistants, USER) == (
        Message("user", "hi\n\nhi"),
        Message("assistant", "a", tool_calls=(ToolCall("t1", "add", "{}"),)),
        Message("user", "hi"),
    )


def test_system_turns_stay_where_they_are() -> None:
    note = {"role": "system", "content": [text("note")]}
    brief = {**note, "clear_at": "next_user_message"}
    said = {"role": "assistant", "content": "a"}
    assert [turn.role for turn in turns(USER, note, said, USER)] == ["user", "system", "assistant", "user"]
    assert [turn.role for turn in turns(USER, brief, said, USER)] == ["user", "assistant", "user"]
    assert [turn.role for turn in turns(USER, brief)] == ["user", "system"]


def test_blocks_of_foreign_tools_are_left_out() -> None:
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"type": "error", "error_code": "x"}},
        text("found"),
    ]
    assert turns(USER, {"role": "assistant", "content": blocks}, USER)[1] == Message("assistant", "found")


@pytest.mark.parametrize(
    ("blocks", "path"),
    [
        ([{"type": "image", "source": {"type": "url", "url": "x"}}], "messages[0].content[0]"),
        ([text("a"), {"type": "document", "source": {}}], "messages[0].content[1]"),
        (
            [{"type": "tool_result", "tool_use_id": "t", "content": [text("a"), {"type": "image", "source": {}}]}],
            "messages[0].content[0].content[1]",
        ),
        (
            [{"type": "tool_result", "tool_use_id": "t", "content": [{"text": "a"}]}],
            "messages[0].content[0].content[0].type",
        ),
        ([{"type": "tool_result", "tool_use_id": "t", "content": 3}], "messages[0].content[0].content"),
        ([{"type": "tool_result", "content": "x"}], "messages[0].content[0].tool_use_id"),
        ([{"type": "text"}], "messages[0].content[0].text"),
        ([{"text": "a"}], "messages[0].content[0].type"),
        ([{"type": "text", "text": 3}], "messages[0].content[0].text"),
    ],
)
def test_blocks_that_cannot_be_read_are_named_by_path(blocks: list[Any], path: str) -> None:
    error = refused(messages=[{"role": "user", "content": blocks}])
    assert error.param == path
    assert path in error.message


@pytest.mark.parametrize(
    ("block", "path"),
    [
        ({"type": "tool_use", "name": "f", "input": {}}, "id"),
        ({"type": "tool_use", "id": "a", "input": {}}, "name"),
        ({"type": "tool_use", "id": "a", "name": "f", "input": [1]}, "input"),
    ],
)
def test_calls_need_their_members(block: dict[str, Any], path: str) -> None:
    error = refused(messages=[USER, {"role": "assistant", "content": [block]}, USER])
    assert error.param == f"messages[1].content[0].{path}"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"model": None}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [USER, {"role": "assistant", "content": "The answer is ("}]}, "messages[1]"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
        ({"stop_sequences": ["x" * 4096, "y"]}, "stop_sequences"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"thinking": {"type": "loud"}}, "thinking.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"max_token": 3}, "max_token"),
        ({"n": 2}, "n"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": SCHEMA}]}, "tools[0].name"),
        ({"tools": [ADD, ADD]}, "tools[1].name"),
        ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [SEARCH], "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [ADD], "tool_choice": {"type": "tool", "name": "sub"}}, "tool_choice.name"),
        ({"tools": [SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}, "tool_choice.name"),
        ({"tools": [ADD], "tool_choice": {"type": "function"}}, "tool_choice.type"),
    ],
    ids=str,
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert error.param == param
    assert param.rpartition("[")[0] in error.message


def test_sampling() -> None:
    drawn = read(temperature=0, top_p=0.5, top_k=7, stop_sequences=["a", "b"], max_tokens=10**9).sampling
    assert (drawn.temperature, drawn.top_p, drawn.top_k, drawn.stop, drawn.max_tokens) == (0, 0.5, 7, ("a", "b"), 10**9)


@pytest.mark.parametrize(
    ("thinking", "kwargs", "hidden"),
    [
        ({"type": "adaptive"}, {"enable_thinking": True, "thinking": True}, False),
        ({"type": "adaptive", "display": "omitted"}, {"enable_thinking": True, "thinking": True}, True),
        ({"type": "disabled"}, {"enable_thinking": False, "thinking": False}, False),
        (
            {"type": "enabled", "budget_tokens": 2000, "display": "summarized"},
            {"enable_thinking": True, "thinking": True, "thinking_budget": 2000},
            False,
        ),
    ],
)
def test_thinking(thinking: dict[str, Any], kwargs: dict[str, Any], hidden: bool) -> None:
    call = decode(thinking=thinking)
    assert isinstance(call.request, ChatRequest)
    assert call.request.template_kwargs == kwargs
    assert call.options.hide_reasoning is hidden


def test_a_budget_is_that_of_the_answer() -> None:
    assert read(thinking={"type": "enabled", "budget_tokens": 2000}).reasoning_budget == 2000
    for other in (None, {"type": "adaptive"}, {"type": "disabled", "budget_tokens": 2000}):
        assert read(thinking=other).reasoning_budget is None


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_structured_output(name: str) -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    value = {"format": form, "effort": "low"} if name == "output_config" else form
    request = read(**{name: value})
    assert request.response_format == ResponseFormat("json_schema", schema=SCHEMA)
    assert request.template_kwargs == ({"reasoning_effort": "low"} if name == "output_config" else {})


@pytest.mark.parametrize(
    ("choice", "wanted", "parallel"),
    [
        (None, ToolChoice(), True),
        ({"type": "auto"}, ToolChoice(), True),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(), False),
        ({"type": "any"}, ToolChoice("required"), True),
        ({"type": "tool", "name": "sub", "disable_parallel_tool_use": True}, ToolChoice("required", ("sub",)), False),
        ({"type": "none"}, ToolChoice("none"), True),
    ],
)
def test_tool_choice(choice: Any, wanted: ToolChoice, parallel: bool) -> None:
    request = read(tools=[ADD, SUB], tool_choice=choice)
    assert request.tools == (Tool("add", "adds", SCHEMA), Tool("sub", None, SCHEMA))
    assert (request.tool_choice, request.parallel_tool_calls) == (wanted, parallel)


@pytest.mark.parametrize(
    "kind",
    ["web_search_20250305", "bash_20250124", "text_editor_20250728", "computer_20250124", "code_execution_20250825"],
)
def test_tools_of_others_are_left_out_with_a_warning(kind: str) -> None:
    call = decode(tools=[ADD, {"type": kind, "name": "theirs"}])
    assert isinstance(call.request, ChatRequest)
    assert [tool.name for tool in call.request.tools] == ["add"]
    assert len(call.warnings) == 1
    assert "tools[1]" in call.warnings[0]
    assert kind in call.warnings[0]


def test_deferred_tools_come_when_they_are_named() -> None:
    tools = [ADD, {**SUB, "defer_loading": True}]

    def offered(*wire: dict[str, Any], **fields: Any) -> list[str]:
        return [tool.name for tool in read(messages=list(wire), tools=tools, **fields).tools]

    found = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "sub"}]}
    result = {"role": "user", "content": [found]}
    reference = {"type": "tool_reference", "name": "sub"}
    added = {"role": "system", "content": [{"type": "tool_addition", "tool": reference}]}
    removed = {"role": "system", "content": [{"type": "tool_removal", "tool": reference}, text("gone")]}
    assert offered(USER) == ["add"]
    assert offered(USER, result) == ["add", "sub"]
    assert offered(USER, added) == ["add", "sub"]
    assert offered(USER, added, removed) == ["add"]
    assert offered(USER, tool_choice={"type": "tool", "name": "sub"}) == ["add", "sub"]
    assert turns(USER, result, tools=tools)[1] == Message("tool", "sub", tool_call_id="t")
    assert turns(USER, added, tools=tools) == (Message("user", "hi"),)
    definition = {"type": "tool_definition", "definition": {"name": "mul", "input_schema": SCHEMA}}
    assert offered(USER, {"role": "system", "content": [{"type": "tool_addition", "tool": definition}]}) == [
        "add",
        "mul",
    ]
    nowhere = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "nowhere"}}
    error = refused(messages=[USER, {"role": "system", "content": [nowhere]}])
    assert error.param == "messages[1].content[0].tool.name"


def test_counting_needs_no_limit_and_takes_an_open_turn() -> None:
    body = {"model": "m", "messages": [USER, {"role": "assistant", "content": "so"}]}
    request = messages.decode_count(json.dumps(body).encode()).request
    assert isinstance(request, ChatRequest)
    assert request.messages == (Message("user", "hi"), Message("assistant", "so"))


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.sampled_from(["text", "tool_use"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["type", "role", "content", "text", "input", "id", "name", "tool"]), inner),
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(sorted(MESSAGES_FIELDS)), JSON, max_size=6))
def test_no_body_breaks_the_decoder(fields: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [USER], **fields}).encode()
    for read_body in (messages.decode, messages.decode_count):
        with contextlib.suppress(ApiError):
            assert isinstance(read_body(body), Call)
