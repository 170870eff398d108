"""Messages events, literally, and the laws of the format."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.deltas import (
    Content,
    Delta,
    Error,
    Finish,
    Reasoning,
    Refusal,
    Start,
    ToolCallArgs,
    ToolCallStart,
    Usage,
)
from millstream.ir.errors import ApiError, context_length_exceeded
from millstream.ir.fold import Text, Thinking, fold
from millstream.surfaces import anthropic_messages as messages
from millstream.surfaces import openai_chat
from millstream.surfaces.anthropic_common import carried_thinking, signature
from millstream.surfaces.partial_json import as_object
from millstream.surfaces.wire import WireOptions
from support.messages import events, fold_messages, legal_messages
from support.wire import TEXT, answers, fold_chat, write

SHOWN = WireOptions(model="m", stream=True)
HIDDEN = WireOptions(model="m", stream=True, hide_reasoning=True)
PING = 'event: ping\ndata: {"type":"ping"}\n\n'
USAGE = (
    '"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":2,"output_tokens":%d,'
    '"output_tokens_details":{"thinking_tokens":%d}}'
)
START = (
    'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",'
    '"model":"m","content":[],"stop_reason":null,"stop_sequence":null,' + USAGE % (0, 0) + "}}\n\n" + PING
)
STOP = 'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def stream(*deltas: Delta, options: WireOptions = SHOWN) -> bytes:
    return write(messages.stream_encoder(options, response_id="msg_1"), list(deltas))


def whole(*deltas: Delta, options: WireOptions = SHOWN) -> dict:
    return json.loads(messages.encode_answer(fold(deltas), options, response_id="msg_1"))


def opened(index: int, block: str) -> str:
    data = f'{{"type":"content_block_start","index":{index},"content_block":{block}}}'
    return f"event: content_block_start\ndata: {data}\n\n"


def delta(index: int, kind: str, key: str, value: str) -> str:
    data = f'{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{key}":{json.dumps(value)}}}}}'
    return f"event: content_block_delta\ndata: {data}\n\n"


def closed(index: int) -> str:
    return f'event: content_block_stop\ndata: {{"type":"content_block_stop","index":{index}}}\n\n'


def ended(reason: str, tokens: int, sequence: str = "null", thinking: int = 0) -> str:
    usage = USAGE % (tokens, thinking)
    data = f'{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":{sequence}}},{usage}}}'
    return f"event: message_delta\ndata: {data}\n\n" + STOP


def test_text() -> None:
    raw = stream(Start(5, 2), Content("He"), Content(""), Content('"\n'), Finish("stop", Usage(5, 3, 2)))
    text = opened(0, '{"type":"text","text":""}')
    written = delta(0, "text_delta", "text", "He") + delta(0, "text_delta", "text", '"\n') + closed(0)
    assert raw.decode() == START + text + written + ended("end_turn", 3)
    legal_messages(raw)


def test_thinking_calls_and_text_between_them() -> None:
    raw = stream(
        Start(5, 2),
        Reasoning("hm"),
        ToolCallStart(0, "toolu_1", "add"),
        ToolCallArgs(0, '{"a":'),
        ToolCallArgs(0, "1}"),
        Content("\n"),
        ToolCallStart(1, "toolu_2", "sub"),
        ToolCallArgs(1, "{}"),
        Finish("tool_calls", Usage(5, 9, 2, 4)),
    )
    assert raw.decode() == (
        START
        + opened(0, '{"type":"thinking","thinking":"","signature":""}')
        + delta(0, "thinking_delta", "thinking", "hm")
        + delta(0, "signature_delta", "signature", signature("hm", carried=False))
        + closed(0)
        + opened(1, '{"type":"tool_use","id":"toolu_1","name":"add","input":{}}')
        + delta(1, "input_json_delta", "partial_json", '{"a":')
        + delta(1, "input_json_delta", "partial_json", "1}")
        + closed(1)
        + opened(2, '{"type":"text","text":""}')
        + delta(2, "text_delta", "text", "\n")
        + closed(2)
        + opened(3, '{"type":"tool_use","id":"toolu_2","name":"sub","input":{}}')
        + delta(3, "input_json_delta", "partial_json", "{}")
        + closed(3)
        + ended("tool_use", 9, thinking=4)
    )
    legal_messages(raw)


def test_arguments_that_come_with_the_name_are_kept() -> None:
    raw = stream(ToolCallStart(0, "a", "f"), ToolCallArgs(0, '{"city":"Rome"}'), Finish("tool_calls", Usage(5, 3)))
    assert fold_messages(legal_messages(raw))["content"][0]["input"] == '{"city":"Rome"}'


def test_interleaved_calls_are_told_one_after_the_other() -> None:
    deltas = [
        ToolCallStart(0, "a", "f"),
        ToolCallStart(1, "b", "g"),
        Content("x"),
        ToolCallArgs(1, '{"b":'),
        ToolCallArgs(0, '{"a":1'),
        ToolCallArgs(0, "}"),
        ToolCallArgs(1, "2}"),
        Finish("tool_calls", Usage(5, 3)),
    ]
    raw = legal_messages(stream(*deltas))
    told = fold_messages(raw)["content"]
    assert [block.get("input", block.get("text")) for block in told] == ['{"a":1}', '{"b":2}', "x"]
    # The first call is not held back by those that wait for it.
    encoder = messages.stream_encoder(SHOWN)
    frames = [encoder.encode(delta) for delta in deltas]
    assert b'"{\\"a\\":1"' in frames[4]
    assert b'"id":"b"' in frames[5]


def test_arguments_after_the_end_of_their_call_are_an_error_and_not_lost() -> None:
    late = [ToolCallStart(0, "a", "f"), ToolCallArgs(0, "{}"), Content("x"), ToolCallArgs(0, " "), ToolCallArgs(0, "y")]
    raw = legal_messages(stream(*late, Finish("tool_calls", Usage(5, 3))))
    assert events(raw)[-1]["type"] == "error"


@pytest.mark.parametrize(
    ("finish", "before", "reason", "sequence"),
    [
        (Finish("stop", Usage(5, 1)), [Content("a")], "end_turn", None),
        (Finish("length", Usage(5, 1)), [Content("a")], "max_tokens", None),
        (Finish("stop", Usage(5, 1), stop_sequence="STOP"), [Content("a")], "stop_sequence", "STOP"),
        (Finish("stop", Usage(5, 0), stop_sequence="STOP"), [], "stop_sequence", "STOP"),
        (Finish("content_filter", Usage(5, 1)), [Content("a")], "refusal", None),
        (Finish("stop", Usage(5, 1)), [Content("no"), Refusal("no")], "refusal", None),
        (Finish("length", Usage(5, 1)), [Content("no"), Refusal("no")], "max_tokens", None),
        (Finish("tool_calls", Usage(5, 1)), [], "end_turn", None),
        (Finish("tool_calls", Usage(5, 1)), [ToolCallStart(0, "a", "f"), ToolCallArgs(0, "{}")], "tool_use", None),
        (Finish("length", Usage(5, 1)), [ToolCallStart(0, "a", "f"), ToolCallArgs(0, '{"a')], "max_tokens", None),
    ],
)
def test_reasons(finish: Finish, before: list[Delta], reason: str, sequence: str | None) -> None:
    told = fold_messages(legal_messages(stream(Start(5), *before, finish)))
    body = whole(Start(5), *before, finish)
    for answer in (told, body):
        assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)
        assert ("stop_details" in answer) == (reason == "refusal")


def test_an_error_ends_the_stream() -> None:
    raw = stream(Start(5, 2), Content("a"), Error("engine died", status=503), Content("b"))
    error = '{"type":"error","error":{"type":"overloaded_error","message":"engine died"},"request_id":null}'
    assert raw.decode().endswith(f'"text":"a"}}}}\n\nevent: error\ndata: {error}\n\n')
    assert b"message_stop" not in raw
    legal_messages(raw)


def test_the_prompt_is_counted_even_if_nothing_told_it_before_the_end() -> None:
    raw = legal_messages(stream(Finish("length", Usage(5, 0, 2))))
    assert events(raw)[0]["message"]["usage"]["input_tokens"] == 3
    assert events(raw)[0]["message"]["usage"]["cache_read_input_tokens"] == 2


def test_ping_at_any_moment() -> None:
    encoder = messages.stream_encoder(SHOWN)
    finish = encoder.encode(Content("a")), encoder.ping(9), encoder.encode(Finish("stop", Usage(5, 1)))
    legal_messages(encoder.ping(1) + b"".join(finish))
    assert encoder.ping(1).decode() == PING


def test_whole_answer() -> None:
    body = whole(
        Start(5, 2),
        Reasoning("hm"),
        Content("a"),
        ToolCallStart(0, "toolu_1", "add"),
        ToolCallArgs(0, '{"a": 1e400}'),
        Finish("tool_calls", Usage(5, 9, 2, 4)),
    )
    thought = {"type": "thinking", "thinking": "hm", "signature": signature("hm", carried=False)}
    assert body == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            thought,
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": float("inf")}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 2,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
        },
    }


def test_hidden_thinking_rides_in_the_signature() -> None:
    deltas = [Start(5), Reasoning("secret"), Content("a"), Finish("stop", Usage(5, 2))]
    raw = legal_messages(stream(*deltas, options=HIDDEN))
    assert b"thinking_delta" not in raw
    for block in (fold_messages(raw)["content"][0], whole(*deltas, options=HIDDEN)["content"][0]):
        assert block["thinking"] == ""
        assert carried_thinking(block["signature"]) == "secret"


@given(TEXT)
def test_signatures_carry_what_they_should(text: str) -> None:
    assert carried_thinking(signature(text, carried=True)) == text
    assert carried_thinking(signature(text, carried=False)) is None


@given(
    st.one_of(
        st.text(max_size=30), st.binary(max_size=30).map(lambda raw: signature("x", carried=True)[:-9] + raw.hex())
    )
)
def test_foreign_signatures_do_no_harm(value: str) -> None:
    assert isinstance(carried_thinking(value), str | None)


@given(data=st.data(), hidden=st.booleans())
def test_legal_streams_are_written_legally_and_fold_to_the_whole_answer(data: st.DataObject, hidden: bool) -> None:
    deltas = data.draw(answers(choices=1))
    options = HIDDEN if hidden else SHOWN
    told = fold_messages(legal_messages(stream(*deltas, options=options), whole_arguments=False))
    body = whole(*deltas, options=options)
    for block in told["content"]:
        if block["type"] == "tool_use":
            block["input"] = json.loads(bytes(as_object(block["input"] or "{}")))
    assert told == body


@given(data=st.data())
def test_messages_and_chat_tell_the_same(data: st.DataObject) -> None:
    deltas = data.draw(answers(choices=1))
    told = fold_messages(stream(*deltas))["content"]
    chat = fold_chat(write(openai_chat.stream_encoder(SHOWN), deltas))[0]
    assert "".join(block.get("text", "") for block in told) == chat["content"]
    assert "".join(block.get("thinking", "") for block in told) == chat["reasoning_content"]
    calls = [(block["id"], block["name"], block["input"] or "") for block in told if block["type"] == "tool_use"]
    assert calls == [(c["id"], c["function"]["name"], c["arguments"]) for c in chat["calls"].values()]
    kinds = {Text: "text", Thinking: "thinking"}
    assert [block["type"] for block in told] == [kinds.get(type(b), "tool_use") for b in fold(deltas).choices[0].blocks]


@given(data=st.data())
def test_failed_streams_are_written_legally(data: st.DataObject) -> None:
    deltas: list[Delta] = data.draw(answers(choices=1))
    kept = data.draw(st.integers(0, len(deltas) - 1))
    raw = legal_messages(stream(*deltas[:kept], Error("broken")), whole_arguments=False)
    assert events(raw)[-1]["error"] == {"type": "api_error", "message": "broken"}
    assert b"message_delta" not in raw


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
        (529, "overloaded_error"),
    ],
)
def test_error_types(status: int, kind: str) -> None:
    body = json.loads(messages.encode_error(ApiError("m", status=status)))
    assert body == {"type": "error", "error": {"type": kind, "message": "m"}, "request_id": None}


def test_a_thread_is_refused_in_the_way_that_clients_go_on_without() -> None:
    with pytest.raises(ApiError) as caught:
        messages.decode(b'{"model": "m", "max_tokens": 1, "messages": [], "thread": {"type": "create"}}')
    error = json.loads(messages.encode_error(caught.value))["error"]
    assert error["details"] == {"error_code": "thread_unsupported_request"}
    assert "'thread' is not supported" in error["message"]


def test_a_long_prompt_is_told_in_the_words_that_clients_know() -> None:
    body = json.loads(messages.encode_error(context_length_exceeded(3000, 2048)))
    assert body["error"]["message"] == "prompt is too long: 3000 tokens > 2047 maximum"


@pytest.mark.parametrize(
    "pattern",
    [
        r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)",  # Claude Code
        r"prompt is too long: (\d+) tokens > (\d+) maximum",  # many others
    ],
)
def test_a_count_that_was_not_finished_is_told_as_such_and_can_be_parsed(pattern: str) -> None:
    message = json.loads(messages.encode_error(context_length_exceeded(9259, 8192, at_least=True)))["error"]["message"]
    found = re.search(pattern, message)
    assert found is not None
    assert found.groups() == ("9259", "8191")
    assert message.endswith("maximum (at least: it was not counted to its end)")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("{", {}),
        ('{"a":1', {}),
        ('{"a":12,"b":"x', {"a": 12}),
        ('{"a":[1,2,{"c":"d"},{"e', {"a": [1, 2, {"c": "d"}, {}]}),
        ('{"a":1,"b":', {"a": 1}),
        ('{"a":"\\', {}),
        ('{"a":true,', {"a": True}),
        ("[1]", {}),
        ("3", {}),
        ('{"a":{"b":{}}}', {"a": {"b": {}}}),
    ],
)
def test_cut_arguments_keep_what_is_complete(text: str, value: dict) -> None:
    assert json.loads(bytes(as_object(text))) == value


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, JSON_VALUES, max_size=3), st.data())
def test_every_cut_of_an_object_is_an_object(value: dict, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(0, len(text)))]
    kept = json.loads(bytes(as_object(cut)))
    assert isinstance(kept, dict)
    assert kept.keys() <= value.keys()
    assert json.loads(bytes(as_object(text))) == value
