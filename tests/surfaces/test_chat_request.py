"""Chat requests: what is read, and what is refused with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.errors import ApiError
from millstream.ir.request import ChatRequest, Message, Output, Sampling, ToolCall
from millstream.surfaces import openai_chat
from millstream.surfaces.openai_chat_request import ChatOptions
from millstream.surfaces.wire import Limits

USER = {"role": "user", "content": "hi"}
BASE = {"model": "m", "messages": [USER]}


def decode(**fields: Any):
    return openai_chat.decode(json.dumps({**BASE, **fields}).encode())


def refusal(body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        openai_chat.decode(body)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def test_neutral() -> None:
    call = decode()
    assert call.request == ChatRequest(model="m", messages=(Message("user", "hi"),))
    assert call.options == ChatOptions(model="m")


def test_a_budget_for_reasoning() -> None:
    assert decode(thinking_token_budget=0).request.reasoning_budget == 0
    assert decode(thinking_token_budget=None).request.reasoning_budget is None
    error = refusal(json.dumps({**BASE, "thinking_token_budget": -1}).encode())
    assert error.param == "thinking_token_budget"


def test_everything() -> None:
    call = decode(
        max_tokens=5,
        max_completion_tokens=7,
        temperature=0,
        top_p=0.5,
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=-2,
        frequency_penalty=2,
        logit_bias={"5": -100, "06": 1.5},
        seed=-(2**63),
        stop=["a", "b"],
        stop_token_ids=[3],
        min_tokens=2,
        ignore_eos=True,
        n=3,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        return_token_ids=True,
        logprobs=True,
        top_logprobs=4,
        chat_template_kwargs={"enable_thinking": False},
        reasoning_effort="low",
    )
    assert call.request == ChatRequest(
        model="m",
        messages=(Message("user", "hi"),),
        template_kwargs={"enable_thinking": False, "reasoning_effort": "low"},
        sampling=Sampling(
            temperature=0,
            top_k=40,
            top_p=0.5,
            min_p=0.1,
            repetition_penalty=1.1,
            presence_penalty=-2,
            frequency_penalty=2,
            logit_bias={5: -100, 6: 1.5},
            seed=-(2**63),
            max_tokens=7,
            min_tokens=2,
            ignore_eos=True,
            stop=("a", "b"),
            stop_token_ids=(3,),
        ),
        output=Output(4, True),
        n=3,
    )
    assert call.options == ChatOptions(
        model="m", stream=True, choices=3, usage=True, running_usage=True, token_ids=True, logprobs=True
    )


def test_running_usage_asks_for_ids_without_showing_them() -> None:
    call = decode(stream=True, stream_options={"continuous_usage_stats": True})
    assert call.request.output.token_ids
    assert not call.options.token_ids


def test_null_is_absent() -> None:
    fields = [*openai_chat.decode.__globals__["CHAT_FIELDS"], "unknown_too"]
    nulls = {name: None for name in fields if name not in ("model", "messages")}
    assert decode(**nulls) == decode()


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tool_choice": "auto"},
        {"tool_choice": "none", "parallel_tool_calls": True},
        {"response_format": {"type": "text"}},
        {"modalities": ["text"]},
        {"best_of": 1},
        {"length_penalty": 1.0},
        {"user": "u", "metadata": {}, "store": False, "prompt_cache_key": "k"},
        {"top_k": -1},
        {"top_logprobs": 0},
        {"stop": []},
    ],
    ids=str,
)
def test_what_asks_for_nothing_is_accepted(fields: dict[str, Any]) -> None:
    assert decode(**fields) == decode()


def test_messages() -> None:
    messages = [
        {"role": "developer", "content": "d"},
        {"role": "system", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}], "name": "bob"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "audio": None,
            "annotations": [],
            "function_call": None,
        },
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "42"}]},
        {"role": "assistant", "content": None, "refusal": "no", "reasoning": "x"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}], "tool_calls": None},
        {"role": "user", "content": ""},
    ]
    assert decode(messages=messages).request.messages == (
        Message("developer", "d"),
        Message("system", "a"),
        Message("user", "bc", name="bob"),
        Message("assistant", "", reasoning="hm", tool_calls=(ToolCall("1", "f", "{}"),)),
        Message("tool", "42", tool_call_id="1"),
        Message("assistant", "no", reasoning="x"),
        Message("assistant", "never"),
        Message("user", ""),
    )


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"model": None}, "model", "must name a model"),
        ({"model": ""}, "model", "must name a model"),
        ({"model": "m" * 513}, "model", "at most 512"),
        ({"model": 3}, "model", "model: expected string, got integer."),
        ({"messages": None}, "messages", "messages is required"),
        ({"messages": []}, "messages", "must not be empty"),
        ({"messages": "hi"}, "messages", "messages: expected array, got string."),
        ({"messages": [USER, 3]}, "messages[1]", "expected object, got integer"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "messages[0].role is required."),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "got 'robot'"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role", "got 'function'"),
        ({"messages": [{"role": 1}]}, "messages[0].role", "expected string, got integer"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "is required"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "is required"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "got integer"),
        ({"messages": [{"role": "user", "content": [3]}]}, "messages[0].content[0]", "got integer"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type", "required"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "required"),
        (
            {"messages": [USER, {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "image_url"}]}]},
            "messages[1].content[1]",
            "'image_url' are not supported",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "refusal"}]}]}, "messages[0].content[0]", "'refusal'"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "required"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "custom"}]}]},
            "messages[0].tool_calls[0].type",
            "'custom'",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls[0].function",
            "required",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]}
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
            "expected string, got object",
        ),
        ({"messages": [{"role": "assistant", "function_call": {}}]}, "messages[0].function_call", "use tool_calls"),
        ({"temperature": 2.1}, "temperature", "temperature must be between 0 and 2, got 2.1."),
        ({"temperature": -0.1}, "temperature", "between 0 and 2"),
        ({"temperature": "hot"}, "temperature", "temperature: expected number, got string."),
        ({"temperature": True}, "temperature", "got boolean"),
        ({"top_p": 0}, "top_p", "above 0 and at most 1"),
        ({"top_p": 1.01}, "top_p", "above 0 and at most 1"),
        ({"top_k": -2}, "top_k", "between -1"),
        ({"top_k": 1.5}, "top_k", "expected integer, got number"),
        ({"min_p": 1.1}, "min_p", "between 0 and 1"),
        ({"repetition_penalty": 0}, "repetition_penalty", "above 0"),
        ({"presence_penalty": 2.1}, "presence_penalty", "between -2 and 2"),
        ({"frequency_penalty": -2.1}, "frequency_penalty", "between -2 and 2"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "token ids, got 'a'"),
        ({"logit_bias": {"-1": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"٣": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5", "between -100 and 100"),
        ({"logit_bias": {"5": "x"}}, "logit_bias[...]", "expected number"),
        ({"logit_bias": [1]}, "logit_bias", "expected object"),
        ({"seed": 2**63}, "seed", "between"),
        ({"seed": 1.0}, "seed", "expected integer"),
        ({"n": 0}, "n", "between 1 and 128, got 0"),
        ({"n": 129}, "n", "between 1 and 128"),
        ({"n": 10**30}, "n", "got a much larger number"),
        ({"max_tokens": 0}, "max_tokens", "between 1"),
        ({"max_tokens": -1}, "max_tokens", "between 1"),
        ({"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens", "between 1"),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens", "min_tokens (6) must not be above max_tokens (5)"),
        ({"stop": ""}, "stop", "must not be empty"),
        ({"stop": ["a", ""]}, "stop", "must not be empty"),
        ({"stop": ["a"] * 17}, "stop", "at most 16"),
        ({"stop": "a" * 4097}, "stop", "at most 4096 characters"),
        ({"stop": ["a" * 4096, "b"]}, "stop", "at most 4096 characters"),
        ({"stop": ["a", 3]}, "stop[1]", "expected string, got integer"),
        ({"stop": 3}, "stop", "expected string"),
        ({"stop_token_ids": [1, -1]}, "stop_token_ids[1]", "must be a token id"),
        ({"stream": "yes"}, "stream", "expected boolean, got string"),
        ({"stream": 1}, "stream", "expected boolean, got integer"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "only allowed when stream is true"),
        ({"stream": True, "stream_options": []}, "stream_options", "expected object"),
        ({"stream": True, "stream_options": {"include_usage": 3}}, "stream_options.include_usage", "expected boolean"),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage", "Unrecognized request argument"),
        ({"top_logprobs": 2}, "top_logprobs", "only allowed when logprobs is true"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "between 0 and 20"),
        ({"logprobs": 1}, "logprobs", "expected boolean"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages", "may not set"),
        ({"chat_template_kwargs": 3}, "chat_template_kwargs", "expected object"),
        ({"chat_template_kwargs": {"a": json.loads("[" * 40 + "]" * 40)}}, "chat_template_kwargs", "too deeply"),
        ({"functions": [{"name": "f"}]}, "functions", "use `tools`"),
        ({"function_call": {"name": "f"}}, "function_call", "use `tool_choice`"),
        ({"modalities": ["text", "audio"]}, "modalities", "answers are text"),
        ({"audio": {}}, "audio", "answers are text"),
        ({"prediction": {}}, "prediction", "not supported"),
        ({"best_of": True}, "best_of", "not supported"),
        ({"temprature": 1}, "temprature", "supplied: 'temprature'. Did you mean 'temperature'?"),
        ({"zzz": 1, "yyy": 2}, "zzz", "arguments supplied: 'zzz', 'yyy'."),
    ],
    ids=lambda value: str(value)[:60],
)
def test_refusals(fields: dict[str, Any], param: str, words: str) -> None:
    error = refusal(json.dumps({**BASE, **fields}).encode())
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "is empty"),
        (b"{", "not valid JSON"),
        (b"hello", "not valid JSON"),
        (b"[]", "expected object, got array"),
        (b"3", "expected object, got integer"),
        (b"null", "expected object"),
        (b'{"model":"m",}', "not valid JSON"),
        (b'{"model":"m"} x', "not valid JSON"),
        (b'{"temperature":NaN}', "not valid JSON"),
        (b'{"temperature":Infinity}', "not valid JSON"),
        (b'{"temperature":1e999}', "out of range"),
        (b'{"seed":1' + b"0" * 5000 + b"}", "out of range"),
        (b'{"model":"\xff"}', "not valid UTF-8: byte 10"),
        (b'{"user":"\xed\xa0\x80"}', "not valid UTF-8"),
        (b'{"model":"\\ud800"}', "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b"\xfe\xff\x00{", "not valid UTF-8"),
        (b'{"user":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"messages":' + b'[{"a":' * 50_000, "nested too deeply"),
        (b'{"chat_template_kwargs":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}", "nested too deeply"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bodies_that_are_no_requests(body: bytes, words: str) -> None:
    assert words in refusal(body).message


def test_the_last_of_equal_keys_counts() -> None:
    body = b'{"model":"a","model":"m","messages":[{"role":"user","content":"hi"}],"n":0,"n":2}'
    assert openai_chat.decode(body).request.n == 2


def test_operator_limits() -> None:
    with pytest.raises(ApiError, match="n must be between 1 and 2, got 3"):
        openai_chat.decode(json.dumps({**BASE, "n": 3}).encode(), Limits(choices=2))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aé\x00", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab1", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(openai_chat.decode.__globals__["CHAT_FIELDS"])), JSON)
def test_any_value_in_any_field_is_read_or_refused(name: str, value: Any) -> None:
    refused: ApiError | None = None
    try:
        openai_chat.decode(json.dumps({**BASE, name: value}).encode())
    except ApiError as error:
        refused = error
    if refused is not None:
        assert refused.status == 400
        assert refused.param is not None


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    refusal(body)


def test_what_is_stored_of_a_request() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    options = decode(
        messages=[USER, {"role": "user", "content": parts, "name": "bob", "cache": 1}],
        store=True,
        metadata={"k": "v"},
        tools=[tool],
        tool_choice={"type": "function", "function": {"name": "f"}},
        response_format={"type": "json_object"},
        temperature=0,
        seed=3,
    ).options
    assert isinstance(options, ChatOptions)
    assert (options.store, options.metadata) == (True, {"k": "v"})
    assert options.messages == (
        {"role": "user", "content": "hi", "name": None, "content_parts": None},
        {"role": "user", "content": "ab", "name": "bob", "content_parts": parts},
    )
    assert options.asked == {
        "temperature": 0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": 3,
        "tools": [tool],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_object"},
    }


def test_nothing_is_gathered_for_an_answer_that_is_not_stored() -> None:
    options = decode(service_tier="flex").options
    assert options == ChatOptions(model="m", tier=True)
