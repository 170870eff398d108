"""Responses: the event ladder, its laws, and what it says when things end badly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

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
from millstream.ir.fold import Text, Thinking, fold
from millstream.surfaces import openai_chat, responses
from millstream.surfaces.responses import ResponsesEncoder, ResponsesOptions
from millstream.surfaces.responses.items import unsealed_reasoning
from millstream.surfaces.responses.tools import ToolName
from millstream.surfaces.wire import WireOptions
from support.responses import encode, events, final, kinds, legal, silent, without_ids
from support.wire import answers, logprob

USAGE = Usage(5, 4, 2, 1)
_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TEXT: list[Delta] = [Start(5, 2), Content("Hel"), Content("lo"), Finish("stop", USAGE)]


def test_ladder_of_text() -> None:
    raw = encode(TEXT)
    assert kinds(raw) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    sent = events(raw)
    identity = sent[2]["item"]["id"]
    assert sent[2]["item"] == {
        "id": identity,
        "type": "message",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
    assert sent[4] == {
        "type": "response.output_text.delta",
        "item_id": identity,
        "output_index": 0,
        "content_index": 0,
        "delta": "Hel",
        "logprobs": [],
        "sequence_number": 4,
    }
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    assert sent[7]["part"] == part
    whole = {**sent[2]["item"], "status": "completed", "content": [part]}
    assert sent[8]["item"] == whole
    response = final(raw)
    assert response["output"] == [whole]
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 9,
    }
    assert (response["status"], response["error"], response["incomplete_details"]) == ("completed", None, None)
    assert response["completed_at"] is not None


def test_every_event_line_names_the_type_of_its_data() -> None:
    """Type in the data, the object under `response`."""
    for frame in encode(TEXT).decode().strip().split("\n\n"):
        event, data = frame.split("\n")
        body = json.loads(data.removeprefix("data: "))
        assert event == f"event: {body['type']}"
    assert events(encode(TEXT))[0]["response"]["object"] == "response"


def test_reasoning_has_added_deltas_and_done() -> None:
    """The whole set, in the stream and in the final output; no summary unasked."""
    raw = encode([Reasoning("h"), Reasoning("m"), Content("ok"), Finish("stop", USAGE)])
    assert kinds(raw)[2:9] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    reasoning, message = final(raw)["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert reasoning["summary"] == []
    assert "encrypted_content" not in reasoning
    assert message["content"][0]["text"] == "ok"


def test_summary_and_sealed_reasoning_when_asked_for() -> None:
    raw = encode([Reasoning("h"), Reasoning("m"), Finish("stop", USAGE)], summary=True, sealed=True)
    summaries = [kind for kind in kinds(raw) if "summary" in kind]
    assert summaries == [
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    item = final(raw)["output"][0]
    assert item["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert unsealed_reasoning(item["encrypted_content"]) == "hm"


def test_parallel_calls_are_separate_items() -> None:
    """The first fragment comes with the start; deltas, done and item agree."""
    raw = encode(
        [
            ToolCallStart(0, "call_a", "add"),
            ToolCallArgs(0, '{"'),
            ToolCallArgs(0, 'a":1}'),
            ToolCallStart(1, "call_b", "sub"),
            ToolCallArgs(1, "{}"),
            Finish("tool_calls", USAGE),
        ]
    )
    assert kinds(raw)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    calls = [(item["call_id"], item["name"], item["arguments"], item["status"]) for item in final(raw)["output"]]
    assert calls == [("call_a", "add", '{"a":1}', "completed"), ("call_b", "sub", "{}", "completed")]


def test_interleaved_arguments_stay_with_their_call() -> None:
    raw = encode(
        [
            ToolCallStart(0, "call_a", "add"),
            ToolCallArgs(0, "{"),
            ToolCallStart(1, "call_b", "sub"),
            ToolCallArgs(1, "{}"),
            ToolCallArgs(0, "}"),
            Finish("tool_calls", USAGE),
        ]
    )
    assert [item["arguments"] for item in final(raw)["output"]] == ["{}", "{}"]


def test_names_go_back_to_their_namespace() -> None:
    names = {"files__read": ToolName("function", "read", "files")}
    raw = encode(
        [ToolCallStart(0, "call_a", "files__read"), ToolCallArgs(0, "{}"), Finish("tool_calls", USAGE)], names=names
    )
    for item in (events(raw)[2]["item"], final(raw)["output"][0]):
        assert (item["type"], item["name"], item["namespace"]) == ("function_call", "read", "files")


def test_custom_calls_are_free_text() -> None:
    names = {"apply_patch": ToolName("custom", "apply_patch")}
    fragments = ['{"in', 'put": "a\\', "n\\u00", "e9\\ud83d", '\\ude00"', "}"]
    raw = encode(
        [
            ToolCallStart(0, "call_a", "apply_patch"),
            *(ToolCallArgs(0, fragment) for fragment in fragments),
            Finish("tool_calls", USAGE),
        ],
        names=names,
    )
    deltas = [event["delta"] for event in events(raw) if event["type"] == "response.custom_tool_call_input.delta"]
    assert deltas == ["a", "\n", "é", "😀"]
    item = final(raw)["output"][0]
    assert (item["type"], item["input"], item["call_id"]) == ("custom_tool_call", "a\né😀", "call_a")


def test_a_refusal_is_a_message_of_its_own() -> None:
    """Codex skips items with parts that it does not know: the text must not go with them."""
    raw = encode([Content("No."), Refusal("No."), Finish("stop", USAGE)])
    assert [kind for kind in kinds(raw) if "refusal" in kind] == ["refusal.delta", "refusal.done"]
    parts = [[part["type"] for part in item["content"]] for item in final(raw)["output"]]
    assert parts == [["output_text"], ["refusal"]]
    assert [event["output_index"] for event in events(raw) if "refusal" in event["type"]] == [1, 1]


@pytest.mark.parametrize(
    ("deltas", "statuses"),
    [
        ([Content("Hel")], ["incomplete"]),
        ([Reasoning("h")], ["incomplete"]),
        ([Reasoning("h"), Content("H")], ["completed", "incomplete"]),
        ([ToolCallStart(0, "c", "f"), ToolCallArgs(0, '{"a":')], ["incomplete"]),
        ([ToolCallStart(0, "c", "f"), ToolCallArgs(0, '{"a":1}')], ["completed"]),
        ([], []),
    ],
)
def test_the_limit_is_told(deltas: list[Delta], statuses: list[str]) -> None:
    """Incomplete, the reason, the cut item, usage."""
    raw = encode([*deltas, Finish("length", USAGE)])
    response = final(raw)
    assert events(raw)[-1]["type"] == "response.incomplete"
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in response["output"]] == statuses
    assert response["usage"]["output_tokens"] == 4
    assert response["completed_at"] is None


def test_filtered_is_incomplete() -> None:
    response = final(encode([Content("x"), Finish("content_filter", USAGE)]))
    assert response["incomplete_details"] == {"reason": "content_filter"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Error("boom"), "server_error"),
        (Error("full", code="queue_full", status=429), "rate_limit_exceeded"),
        (Error("bad", type="invalid_request_error", status=400), "invalid_prompt"),
    ],
)
def test_a_failure_is_told_and_half_a_call_is_not_done(error: Error, code: str) -> None:
    """One terminal event, in order, with the error; nothing that a client could act on."""
    raw = encode([Content("Hel"), ToolCallStart(0, "c", "f"), ToolCallArgs(0, '{"a'), error])
    assert kinds(raw)[-2:] == ["function_call_arguments.delta", "failed"]
    response = final(raw)
    assert response["status"] == "failed"
    assert response["error"] == {"code": code, "message": error.message}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


def test_a_stream_that_just_stops_has_failed() -> None:
    assert final(encode([Content("Hel")]))["status"] == "failed"


def test_nothing_comes_after_the_last_delta() -> None:
    encoder = ResponsesEncoder(ResponsesOptions())
    encoder.start()
    encoder.encode(Finish("stop", USAGE))
    assert encoder.encode(Error("too late")) == b""
    assert b"response.completed" in encoder.end()
    assert encoder.end() == encoder.ping(60) == b""


def test_keep_alive_is_an_event_with_its_number() -> None:
    """The number counts over all events, keep-alives too."""
    encoder = ResponsesEncoder(ResponsesOptions(model="tiny"))
    raw = encoder.start() + encoder.encode(Content("a")) + encoder.ping(10) + encoder.encode(Content("b"))
    raw += encoder.ping(10) + encoder.encode(Finish("stop", USAGE)) + encoder.ping(10) + encoder.end()
    assert [event["sequence_number"] for event in events(raw)] == list(range(len(events(raw))))
    assert kinds(raw).count("in_progress") == 4
    legal(raw)


def test_logprobs_only_if_asked_for() -> None:
    deltas: list[Delta] = [Content("a", logprobs=(logprob("a"),)), Finish("stop", USAGE)]
    raw = encode(deltas, logprobs=True)
    entry = final(raw)["output"][0]["content"][0]["logprobs"][0]
    assert (entry["token"], entry["bytes"], entry["logprob"]) == ("a", [97], -0.5)
    assert [top["token"] for top in entry["top_logprobs"]] == ["a", "x"]
    assert final(encode(deltas))["output"][0]["content"][0]["logprobs"] == []


def test_the_response_object_satisfies_the_sdk() -> None:
    calls: list[Delta] = [ToolCallStart(0, "c", "f"), ToolCallArgs(0, "{}"), ToolCallStart(1, "d", "g")]
    names = {"g": ToolName("custom", "g", "space")}
    for raw in (
        encode(TEXT),
        encode([Reasoning("h"), *calls, Finish("tool_calls", USAGE)], names=names, summary=True, sealed=True),
        encode([Content("H", logprobs=(logprob("H"),)), Refusal("H"), Finish("length", USAGE)], logprobs=True),
        encode([Error("boom")]),
    ):
        for event in events(raw):
            _EVENT.validate_python(event)
        required = {name for name, field in Response.model_fields.items() if field.is_required()}
        assert required <= final(raw).keys()


@given(answers(choices=1), st.booleans(), st.booleans(), st.booleans())
def test_every_stream_is_legal_and_folds_to_the_whole_answer(
    deltas: list[Delta], logprobs: bool, summary: bool, sealed: bool
) -> None:
    """The lint sees ids, indices and order."""
    options = {"logprobs": logprobs, "summary": summary, "sealed": sealed}
    streamed = final(encode(deltas, **options))
    assert without_ids(streamed) == without_ids(silent(deltas, **options))


@given(answers(choices=1), st.integers(0, 20))
def test_every_failure_is_legal(deltas: list[Delta], at: int) -> None:
    raw = encode([*deltas[:-1][:at], Error("boom")])
    assert final(raw)["status"] == "failed"


@given(answers(choices=1))
def test_it_tells_what_chat_tells(deltas: list[Delta]) -> None:
    answer = fold(deltas)
    choice = answer.choices[0]
    output = final(encode(deltas))["output"]
    chat = json.loads(openai_chat.encode_answer(answer, WireOptions()))["choices"][0]["message"]
    texts = [part["text"] for item in output for part in item.get("content", ()) if part["type"] == "output_text"]
    assert "".join(texts) == (chat["content"] or "")
    thoughts = [part["text"] for item in output for part in item.get("content", ()) if part["type"] == "reasoning_text"]
    assert "".join(thoughts) == chat.get("reasoning_content", "")
    calls = [(item["call_id"], item["name"], item["arguments"]) for item in output if item["type"] == "function_call"]
    assert calls == [(call.id, call.name, call.arguments) for call in choice.tool_calls]
    kinds_of_blocks = {Text: "message", Thinking: "reasoning"}
    order = [kinds_of_blocks.get(type(block), "function_call") for block in choice.blocks]
    assert [item["type"] for item in output if not _only_refused(item)] == order


def _only_refused(item: dict[str, Any]) -> bool:
    return item["type"] == "message" and [part["type"] for part in item["content"]] == ["refusal"]


@given(answers(choices=1))
def test_the_fold_can_be_encoded_too(deltas: list[Delta]) -> None:
    options = ResponsesOptions(model="tiny")
    body = json.loads(responses.encode_answer(fold(deltas), options, response_id="resp_1", created=7))
    assert without_ids(body) == without_ids(silent(deltas))
