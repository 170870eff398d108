"""Chat frames, literally."""

from __future__ import annotations

import json
import math

from millstream.ir.deltas import (
    Content,
    Error,
    Finish,
    Reasoning,
    Refusal,
    Start,
    TokenLogprob,
    ToolCallArgs,
    ToolCallStart,
    Usage,
)
from millstream.ir.fold import fold
from millstream.surfaces import openai_chat
from millstream.surfaces.wire import WireOptions
from support.wire import chunks, legal, logprob, write

HEAD = '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":9,"model":"m","choices":'
USAGE = (
    '"usage":{"prompt_tokens":5,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":2},'
    '"completion_tokens_details":{"reasoning_tokens":0}}'
)


def stream(*deltas, **options) -> bytes:
    wire = WireOptions(model="m", stream=True, **options)
    encoder = openai_chat.stream_encoder(wire, response_id="chatcmpl-1", created=9)
    return write(encoder, list(deltas))


def frames(*choices: str) -> bytes:
    return "".join(f"data: {HEAD}[{choice}]}}\n\n" for choice in choices).encode()


ROLE = '{"index":%d,"delta":{"role":"assistant","content":""},"finish_reason":null}'
DONE = b"data: [DONE]\n\n"


def test_text() -> None:
    raw = stream(Start(5, 2), Content("Hé"), Content(""), Content('"\n'), Finish("stop", Usage(5, 3)))
    assert raw == (
        frames(
            ROLE % 0,
            '{"index":0,"delta":{"content":"Hé"},"finish_reason":null}',
            '{"index":0,"delta":{"content":"\\"\\n"},"finish_reason":null}',
            '{"index":0,"delta":{},"finish_reason":"stop"}',
        )
        + DONE
    )
    legal(raw, "chat_completions", usage=False)


def test_usage_comes_once_after_the_last_finish() -> None:
    raw = stream(
        Start(5, 2),
        Content("a", 1),
        Finish("stop", Usage(5, 1, 2), 1),
        Finish("length", Usage(5, 3, 2), 0),
        choices=2,
        usage=True,
    )
    assert raw == (
        frames(
            ROLE % 0,
            ROLE % 1,
            '{"index":1,"delta":{"content":"a"},"finish_reason":null}',
            '{"index":1,"delta":{},"finish_reason":"stop"}',
            '{"index":0,"delta":{},"finish_reason":"length"}',
        )
        + f"data: {HEAD}[],{USAGE % (4, 9)}}}\n\n".encode()
        + DONE
    )
    legal(raw, "chat_completions", choices=2, usage=True)


def test_running_usage_counts_tokens_that_are_not_shown() -> None:
    raw = stream(
        Start(5, 2),
        Content("a", token_ids=(1, 2)),
        Finish("stop", Usage(5, 3, 2), token_ids=(3,)),
        running_usage=True,
    )
    legal(raw, "chat_completions", running_usage=True, usage=False)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks(raw)] == [0, 2, 3]
    assert [chunk["usage"]["prompt_tokens"] for chunk in chunks(raw)] == [0, 5, 5]
    assert b"token_ids" not in raw


def test_reasoning_calls_and_refusal() -> None:
    raw = stream(
        Reasoning("hm"),
        ToolCallStart(0, "call_1", "add"),
        ToolCallArgs(0, '{"a":'),
        ToolCallStart(1, "call_2", "sub"),
        Finish("tool_calls", Usage(5, 3)),
        Content("I can't", 1),
        Refusal("I can't", 1),
        Finish("stop", Usage(5, 3), 1),
        choices=2,
    )
    opening = '{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"%s","type":"function","function":{"name":"%s",'
    assert raw == (
        frames(
            ROLE % 0,
            ROLE % 1,
            '{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}',
            opening % (0, "call_1", "add") + '"arguments":""}}]},"finish_reason":null}',
            '{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\":"}}]},"finish_reason":null}',
            opening % (1, "call_2", "sub") + '"arguments":""}}]},"finish_reason":null}',
            '{"index":0,"delta":{},"finish_reason":"tool_calls"}',
            '{"index":1,"delta":{"content":"I can\'t"},"finish_reason":null}',
            '{"index":1,"delta":{"refusal":"I can\'t"},"finish_reason":null}',
            '{"index":1,"delta":{},"finish_reason":"stop"}',
        )
        + DONE
    )
    legal(raw, "chat_completions", choices=2)


def test_an_error_ends_the_stream_without_a_finish() -> None:
    raw = stream(Content("a"), Error("engine died", code="engine_error"), usage=True)
    assert raw.endswith(
        b'data: {"error":{"message":"engine died","type":"server_error","param":null,"code":"engine_error"}}\n\n' + DONE
    )
    assert b'finish_reason":"' not in raw
    assert b"usage" not in raw
    legal(raw, "chat_completions", usage=True)


def test_logprobs_and_token_ids_ride_beside_the_delta() -> None:
    lowest = TokenLogprob(3, "b", b"\xe2\x82", -math.inf)
    raw = stream(
        Content("a", token_ids=(1,), logprobs=(logprob("a"),)),
        Content("", token_ids=(2,), logprobs=(lowest,)),
        Finish("stop", Usage(5, 3), token_ids=(3,)),
        token_ids=True,
        logprobs=True,
    )
    _, first, second, last = chunks(legal(raw, "chat_completions"))
    assert first["choices"][0]["token_ids"] == [1]
    assert first["choices"][0]["logprobs"]["content"] == [
        {
            "token": "a",
            "logprob": -0.5,
            "bytes": [97],
            "top_logprobs": [
                {"token": "a", "logprob": -0.5, "bytes": [97]},
                {"token": "x", "logprob": -2.0, "bytes": [120]},
            ],
        }
    ]
    assert second["choices"][0]["delta"] == {"content": ""}
    assert second["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0
    assert second["choices"][0]["logprobs"]["content"][0]["bytes"] == [0xE2, 0x82]
    assert last["choices"][0]["token_ids"] == [3]


def test_what_was_not_asked_for_is_not_shown() -> None:
    raw = stream(Content("a", token_ids=(1,), logprobs=(logprob("a"),)), Finish("stop", Usage(5, 3), token_ids=(3,)))
    assert b"token_ids" not in raw
    assert b"logprobs" not in raw


def test_ping_is_a_comment_until_clients_that_skip_comments_would_leave() -> None:
    encoder = openai_chat.stream_encoder(WireOptions(model="m"), response_id="chatcmpl-1", created=9)
    assert encoder.ping(10) == b": keep-alive\n\n"
    assert encoder.ping(60) == frames('{"index":0,"delta":{"content":""},"finish_reason":null}')


def test_ids_are_minted_once_and_differ() -> None:
    encoders = [openai_chat.stream_encoder(WireOptions(model="m")) for _ in range(2)]
    ids = [{chunk["id"] for chunk in chunks(write(encoder, [Finish("stop", Usage())]))} for encoder in encoders]
    assert [len(one) for one in ids] == [1, 1]
    assert ids[0] != ids[1]


def test_whole_answer() -> None:
    answer = fold(
        [
            Start(5, 2),
            Reasoning("hm", logprobs=(logprob("hm"),)),
            ToolCallStart(0, "call_1", "add"),
            ToolCallArgs(0, "{}"),
            Finish("tool_calls", Usage(5, 3, 2, 1)),
        ]
    )
    body = json.loads(
        openai_chat.encode_answer(
            answer, WireOptions(model="m", logprobs=True, token_ids=True), response_id="chatcmpl-1", created=9
        )
    )
    assert body["choices"][0]["logprobs"]["content"][0]["token"] == "hm"
    body["choices"][0].pop("logprobs")
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call], "refusal": None}
    assert body == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 9,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls", "token_ids": []}],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }
