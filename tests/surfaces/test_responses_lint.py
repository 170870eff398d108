"""The lint of Responses streams finds what other servers got wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.deltas import Content, Finish, Reasoning, ToolCallArgs, ToolCallStart, Usage
from millstream.lint.responses_stream import ResponsesExpectation, lint_responses
from support.responses import encode, events

Events = list[dict[str, Any]]

GOOD = events(
    encode(
        [
            Reasoning("h"),
            Content("a"),
            Content("b"),
            ToolCallStart(0, "c", "f"),
            ToolCallArgs(0, "{}"),
            Finish("tool_calls", Usage(5, 4)),
        ],
        summary=True,
    )
)
CUT = events(encode([Content("a"), Finish("length", Usage(5, 4))]))


def write(sent: Events) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in sent)


def renumbered(sent: Events) -> Events:
    return [{**event, "sequence_number": number} for number, event in enumerate(sent)]


def rules(sent: Events, **expect: Any) -> set[str]:
    return {finding.rule for finding in lint_responses(write(sent), ResponsesExpectation(**expect))}


def at(kind: str, sent: Events) -> int:
    return [event["type"] for event in sent].index("response." + kind)


def without(kind: str) -> Callable[[Events], Events]:
    return lambda sent: renumbered([event for event in sent if event["type"] != "response." + kind])


def changed(kind: str, **fields: Any) -> Callable[[Events], Events]:
    def change(sent: Events) -> Events:
        place = at(kind, sent)
        return [{**event, **fields} if number == place else event for number, event in enumerate(sent)]

    return change


def dropped(kind: str, field: str) -> Callable[[Events], Events]:
    return lambda sent: [
        {key: value for key, value in event.items() if key != field or event["type"] != "response." + kind}
        for event in sent
    ]


def test_what_is_right_passes() -> None:
    assert rules(GOOD) == rules(CUT) == set()


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (changed("output_item.done", item={"id": "msg_new", "type": "reasoning"}), "item"),
        (changed("output_text.delta", item_id="msg_other"), "item"),
        (dropped("output_text.delta", "output_index"), "index"),
        (dropped("output_text.delta", "content_index"), "part"),
        (changed("output_text.done", sequence_number=1), "sequence"),
        (dropped("reasoning_text.delta", "sequence_number"), "sequence"),
        (without("created"), "order"),
        (without("completed"), "terminal"),
        (without("reasoning_text.delta"), "text"),
        (without("reasoning_text.done"), "part"),
        (without("content_part.added"), "part"),
        (without("content_part.done"), "part"),
        (without("output_item.added"), "index"),
        (without("output_item.done"), "item"),
        (without("function_call_arguments.delta"), "text"),
        (without("function_call_arguments.done"), "call"),
        (changed("function_call_arguments.done", arguments=""), "text"),
        (changed("output_text.delta", delta="x"), "text"),
        (lambda sent: [*sent, sent[-1]], "terminal"),
        (lambda sent: renumbered([*sent[:-1], {"type": "response.strange"}, sent[-1]]), "type"),
    ],
)
def test_faults_are_found(fault: Callable[[Events], Events], rule: str) -> None:
    assert rule in rules(fault(GOOD))


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"output": []}, "output"),
        ({"output": GOOD[-1]["response"]["output"][::-1]}, "output"),
        ({"usage": None}, "usage"),
        ({"status": "in_progress"}, "envelope"),
        ({"id": "resp_other"}, "envelope"),
        ({"error": {"code": "x"}}, "terminal"),
        ({"output": 3}, "output"),
    ],
)
def test_faults_of_the_end_are_found(fields: dict[str, Any], rule: str) -> None:
    end = {**GOOD[-1], "response": {**GOOD[-1]["response"], **fields}}
    assert rule in rules([*GOOD[:-1], end])


def test_a_cut_answer_is_not_complete() -> None:
    response = {**CUT[-1]["response"], "status": "completed", "incomplete_details": None}
    assert "terminal" in rules([*CUT[:-1], {**CUT[-1], "type": "response.completed", "response": response}])


def test_a_summary_that_nobody_asked_for() -> None:
    assert "summary" in rules(GOOD, summary=False)


def test_an_event_line_that_differs() -> None:
    raw = write(GOOD).replace(b"event: response.created", b"event: message", 1)
    assert {finding.rule for finding in lint_responses(raw)} == {"type"}


@given(st.data())
def test_no_capture_makes_it_fail(data: st.DataObject) -> None:
    """Anything at all in any place of an event."""
    sent = [dict(event) for event in GOOD]
    event = data.draw(st.sampled_from(sent))
    junk = st.one_of(st.none(), st.integers(-2, 9), st.text(max_size=3), st.lists(st.integers(), max_size=2))
    event[data.draw(st.sampled_from(sorted(event)))] = data.draw(junk)
    lint_responses(write([{**each, "type": str(each.get("type"))} for each in sent]))
