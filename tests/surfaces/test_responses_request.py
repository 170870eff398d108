"""Responses: what a body becomes, and what it is refused for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from millstream.ir.errors import ApiError
from millstream.ir.request import ChatRequest, Message, ResponseFormat, Sampling, Tool, ToolCall, ToolChoice
from millstream.surfaces.fields import markdown_table
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.responses import ResponsesOptions, build, decode, parse
from millstream.surfaces.responses.fields import RESPONSES_FIELDS
from millstream.surfaces.responses.items import sealed_reasoning, unsealed_reasoning
from millstream.surfaces.responses.request import ResponsesBody
from millstream.surfaces.responses.tools import CUSTOM_PARAMETERS, ToolName
from millstream.surfaces.wire import Call

CAPTURES = sorted((Path(__file__).parent / "captures").glob("codex-*.json"))
API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"
FUNCTION = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}


def read(**fields: Any) -> tuple[ChatRequest, ResponsesOptions]:
    call = call_of(**fields)
    assert isinstance(call.request, ChatRequest)
    assert isinstance(call.options, ResponsesOptions)
    return call.request, call.options


def call_of(**fields: Any) -> Call:
    return decode(json.dumps({"model": "tiny", "input": "hi", **fields}).encode())


def messages(*items: Any, **fields: Any) -> tuple[Message, ...]:
    return read(input=list(items), **fields)[0].messages


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call_of(**fields)
    assert caught.value.status == 400
    return caught.value


def problem_of(**fields: Any) -> ApiError | None:
    try:
        call_of(**fields)
    except ApiError as error:
        return error
    return None


def test_every_field_of_openai_is_decided() -> None:
    assert set(ResponseCreateParamsBase.__annotations__) - set(RESPONSES_FIELDS) == set()


def test_what_is_said_to_be_honoured_is_read() -> None:
    honoured = {name for name, field in RESPONSES_FIELDS.items() if field.status == "honoured"}
    assert honoured == set(ResponsesBody.__struct_fields__)


def test_the_api_page_prints_the_table() -> None:
    assert markdown_table(RESPONSES_FIELDS) in API_PAGE.read_text(), (
        "run: python -m millstream.surfaces.responses docs/api.md"
    )


def test_a_string() -> None:
    request, options = read()
    assert request == ChatRequest(model="tiny", messages=(Message("user", "hi"),))
    assert options.store
    assert not options.stream


def test_null_is_absent() -> None:
    nothing = dict.fromkeys(set(RESPONSES_FIELDS) - {"model", "input"})
    assert read(**nothing)[0] == read()[0]


def test_messages_of_every_role() -> None:
    assert messages(
        {"role": "developer", "content": "a"},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "b"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "e"}, {"type": "refusal", "refusal": "f"}]},
        instructions="first",
    ) == (
        Message("system", "first"),
        Message("developer", "a"),
        Message("system", "b"),
        Message("user", "cd"),
        Message("assistant", "e"),
    )


def test_an_assistants_turn_is_one_message() -> None:
    assert messages(
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": "text"},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": 'a"b'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "2"},
    ) == (
        Message("user", "q"),
        Message("assistant", "text", "hm", (ToolCall("c1", "add", "{}"), ToolCall("c2", "patch", '{"input":"a\\"b"}'))),
        Message("tool", "1", tool_call_id="c1"),
        Message("tool", "2", tool_call_id="c2"),
    )


def test_a_refusal_is_said_once() -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    text = {"role": "assistant", "content": [{"type": "output_text", "text": "No."}]}
    assert messages(refusal) == messages(text, refusal) == (Message("assistant", "No."),)


def test_what_hosted_tools_did_is_left_out() -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    request, _ = read(input=[search, {"role": "user", "content": "hi"}])
    assert request.messages == (Message("user", "hi"),)
    assert call_of(input=[search, {"role": "user", "content": "hi"}]).warnings == (
        "items of hosted tools were left out: web_search_call",
    )


def test_two_messages_are_two_turns() -> None:
    parts = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert messages(*parts) == (Message("assistant", "a"), Message("assistant", "b"))


@pytest.mark.parametrize(
    ("item", "reasoning"),
    [
        ({"summary": [{"type": "summary_text", "text": "s"}]}, "s"),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "c"}]}, "c"),
        ({"summary": [], "encrypted_content": sealed_reasoning("own")}, "own"),
        ({"summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAAAforeign"}, "s"),
        ({"summary": [], "encrypted_content": "gAAAAforeign"}, None),
        ({"summary": [], "encrypted_content": "millstream-1.broken"}, None),
    ],
)
def test_reasoning_comes_back(item: dict[str, Any], reasoning: str | None) -> None:
    found = messages({"type": "reasoning", "id": "rs_1", **item}, {"role": "assistant", "content": "x"})
    assert found == (Message("assistant", "x", reasoning),)


@given(st.text())
def test_sealed_reasoning_is_unsealed(text: str) -> None:
    assert unsealed_reasoning(sealed_reasoning(text)) == text


@given(st.text(max_size=40))
def test_what_is_not_ours_is_not_read(tail: str) -> None:
    assert unsealed_reasoning(tail) is None
    assert unsealed_reasoning("millstream-1." + tail) is None or tail


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_codex_is_accepted(path: Path) -> None:
    call = decode(path.read_bytes())
    request, options = call.request, call.options
    assert isinstance(request, ChatRequest)
    assert isinstance(options, ResponsesOptions)
    names = [tool.name for tool in request.tools]
    assert "exec_command" in names
    assert options.names["multi_agent_v1__spawn_agent"] == ToolName("function", "spawn_agent", "multi_agent_v1")
    assert (options.store, options.stream, options.summary, options.sealed) == (False, True, True, True)
    assert bool(call.warnings) == ("web_search" in path.read_text())
    if path.stem == "codex-2":
        assert [message.role for message in request.messages][-2:] == ["assistant", "user"]
        assert request.messages[-2].content == "Hello"


def test_tools() -> None:
    custom = {"type": "custom", "name": "patch", "description": "Edits.", "format": {"type": "text"}}
    grammar = {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}}
    space = {"type": "namespace", "name": "mcp__files__", "description": "", "tools": [{**FUNCTION, "name": "read"}]}
    request, options = read(tools=[space, FUNCTION, custom, grammar, {"type": "web_search"}])
    assert request.tools == (
        Tool("add", None, {"type": "object"}, True),
        Tool("patch", "Edits.", CUSTOM_PARAMETERS, True),
        Tool("g", "The input must match this Lark grammar:\nstart: X", CUSTOM_PARAMETERS, True),
        Tool("mcp__files__read", None, {"type": "object"}, True),
    )
    assert options.names["patch"] == ToolName("custom", "patch")
    assert "web_search" in call_of(tools=[{"type": "web_search"}]).warnings[0]
    assert len(json.loads(bytes(options.echo["tools"]))) == 5


def test_joined_names_make_way() -> None:
    space = {"type": "namespace", "name": "a", "description": "", "tools": [{**FUNCTION, "name": "b"}]}
    request, options = read(tools=[space, {**FUNCTION, "name": "a__b"}])
    assert [tool.name for tool in request.tools] == ["a__b", "a__b_2"]
    call = {"type": "function_call", "call_id": "c", "name": "b", "namespace": "a", "arguments": "{}"}
    replayed = messages(call, tools=[space, {**FUNCTION, "name": "a__b"}])
    assert replayed[0].tool_calls[0].name == "a__b_2"
    assert messages(call)[0].tool_calls[0].name == "a__b"
    assert options.names["a__b_2"].namespace == "a"


@pytest.mark.parametrize(
    ("wire", "choice"),
    [
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "add"}, ToolChoice("required", ("add",))),
        ({"type": "custom", "name": "patch"}, ToolChoice("required", ("patch",))),
        ({"type": "function", "name": "read"}, ToolChoice("required", ("s__read",))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]},
            ToolChoice("auto", ("add",)),
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "patch"}]},
            ToolChoice("required", ("patch",)),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}, ToolChoice("none")),
    ],
)
def test_tool_choice(wire: Any, choice: ToolChoice) -> None:
    space = {"type": "namespace", "name": "s", "description": "", "tools": [{**FUNCTION, "name": "read"}]}
    tools = [FUNCTION, {"type": "custom", "name": "patch"}, space, {"type": "web_search"}]
    assert read(tools=tools, tool_choice=wire)[0].tool_choice == choice


def test_formats_and_reasoning() -> None:
    schema = {"type": "object"}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    request, options = read(text={"format": form, "verbosity": "low"}, reasoning={"effort": "none"})
    assert request.response_format == ResponseFormat("json_schema", schema, name="n", strict=True)
    assert request.reasoning_effort == "none"
    assert request.template_kwargs == {"reasoning_effort": "none", "enable_thinking": False}
    assert json.loads(bytes(options.echo["text"])) == {"format": form, "verbosity": "low"}
    assert read(text={"format": {"type": "json_object"}})[0].response_format == ResponseFormat("json_object")
    assert read(text={"format": {"type": "text"}})[0].response_format == ResponseFormat()


def test_sampling_and_logprobs() -> None:
    request, options = read(temperature=0, top_p=0.5, seed=3, max_output_tokens=7, stop="x", top_logprobs=2)
    assert request.sampling == Sampling(temperature=0, top_p=0.5, seed=3, max_tokens=7, stop=("x",))
    assert request.output.logprobs == 2
    assert options.logprobs
    assert read(include=["message.output_text.logprobs"])[0].output.logprobs == 0
    assert read()[0].output.logprobs is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"content": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "mcp_call", "id": "mcp_1"}]}, "input[0].type"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id"),
        ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "foreign"}]}, "input"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "magic", "name": "x"}]}, "tools[0].type"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools[1].name"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp", "name": "x"}]}]},
            "tools[0].tools[0].type",
        ),
        ({"tools": [{"type": "custom", "name": "x", "format": {"type": "grammar"}}]}, "tools[0].format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "sub"}}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.mode"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"reasoning": {"effort": "heroic"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
        ({"include": ["everything"]}, "include[0]"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"truncation": "sometimes"}, "truncation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ({"metadata": {"k": "x" * 513}}, "metadata.k"),
        ({"metadata": {"k": 3}}, "metadata[...]"),
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 3}, "max_tokens"),
    ],
)
def test_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


def test_history_and_references() -> None:
    item = {"id": "msg_1", "type": "message", "role": "user", "status": "completed", "content": [_text("old")]}
    body = {"model": "tiny", "input": [{"type": "item_reference", "id": "msg_9"}], "instructions": "now"}
    parsed = parse(json.dumps(body).encode())
    assert parsed.references == ["msg_9"]
    stored = {"msg_9": {**item, "id": "msg_9", "content": [_text("new")]}}
    request = build(parsed, history=[item], stored=stored).request
    assert isinstance(request, ChatRequest)
    assert request.messages == (Message("system", "now"), Message("user", "old"), Message("user", "new"))


def test_items_get_ids_that_are_their_own() -> None:
    same = {"type": "message", "id": "<id>", "role": "user", "content": "x"}
    ids = [item["id"] for item in read(input=[same, same, {"role": "user", "content": "y"}])[1].input_items]
    assert ids[0] == "<id>"
    assert len(set(ids)) == 3


def test_the_echo_is_complete_and_small() -> None:
    options = read(tools=[FUNCTION], metadata={"a": "b"}, instructions="do", user="me")[1]
    echo = json.loads(to_json(options.echo))
    assert echo["tools"] == [FUNCTION]
    assert echo["metadata"] == {"a": "b"}
    assert (echo["instructions"], echo["user"], echo["temperature"]) == ("do", "me", 1.0)


def _text(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"{", b'{"model":"\xff"}', b"[" * 100_000, b'{"input":' + b"[" * 9999]
)
def test_bodies_that_are_none(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        decode(body)
    assert caught.value.status == 400


@pytest.mark.parametrize("field", ["user", "tool_choice", "tools", "prompt_cache_key", "metadata", "text", "image"])
@pytest.mark.parametrize("depth", [70, 900, 20_000])
def test_depth_without_end(field: str, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    value = f'[{{"type":"web_search","filters":{nested}}}]' if field == "tools" else nested
    body = f'{{"model":"tiny","input":"hi","{field}":{value}}}'.encode()
    try:
        to_json(decode(body).options.echo)  # type: ignore[attr-defined]
    except ApiError as error:
        problem = error.status
    else:
        problem = 0
    assert problem in (0, 400)


def test_too_many_references() -> None:
    assert refused(input=[{"type": "item_reference", "id": "x"}] * 1025).param == "input"


JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "name", "tools", "id", "output", "call_id", "format"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(sorted(RESPONSES_FIELDS)), JUNK, max_size=4))
def test_any_value_of_any_field_is_accepted_or_a_400(fields: dict[str, Any]) -> None:
    problem = problem_of(**fields)
    assert problem is None or problem.status == 400


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "x"]),
                "role": st.sampled_from(["user", "assistant", "developer"]),
            },
            optional={
                "content": JUNK,
                "summary": JUNK,
                "call_id": st.text(max_size=3),
                "name": st.text(max_size=3),
                "arguments": st.text(max_size=3),
                "output": JUNK,
            },
        ),
        max_size=4,
    )
)
def test_any_items_are_accepted_or_a_400_that_names_one(items: list[Any]) -> None:
    problem = problem_of(input=items)
    assert problem is None or (problem.status == 400 and str(problem.param).startswith("input"))
