"""The judge itself: each rule catches the stream that breaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.lint.openai_stream import Expectation, lint_chat, lint_completion

DONE = "data: [DONE]\n\n"
ROLE = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
TEXT = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
STOP = {"index": 0, "delta": {}, "finish_reason": "stop"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
ERROR = {"message": "m", "type": "server_error", "param": None, "code": None}


def chunk(*choices: dict[str, Any], **more: Any) -> str:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": list(choices)}
    return f"data: {json.dumps({**head, **more})}\n\n"


def error() -> str:
    return f"data: {json.dumps({'error': ERROR})}\n\n"


def call(index: int, **more: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": ""}
    full = {"index": index, "id": f"c{index}", "type": "function", "function": function, **more}
    return {"index": 0, "delta": {"tool_calls": [full]}, "finish_reason": None}


def test_legal_streams_pass() -> None:
    raw = chunk(ROLE) + ": keep-alive\n\n" + chunk(TEXT) + chunk(STOP) + chunk(usage=USAGE) + DONE
    assert lint_chat(raw.encode(), Expectation(usage=True)) == []
    assert lint_chat((chunk(ROLE) + error() + DONE).encode(), Expectation(usage=True)) == []


@pytest.mark.parametrize(
    ("rule", "raw"),
    [
        ("framing", chunk(ROLE) + chunk(STOP) + DONE[:-1]),
        ("framing", "hello\n\n" + chunk(ROLE) + chunk(STOP) + DONE),
        ("json", chunk(ROLE) + "data: {\n\n" + chunk(STOP) + DONE),
        ("json", chunk(ROLE) + "data: 3\n\n" + chunk(STOP) + DONE),
        ("done-last", chunk(ROLE) + chunk(STOP)),
        ("done-last", chunk(ROLE) + chunk(STOP) + DONE + DONE),
        ("done-last", chunk(ROLE) + chunk(STOP) + DONE + chunk(usage=USAGE)),
        ("envelope", chunk(ROLE) + chunk(STOP, id="2") + DONE),
        ("envelope", chunk(ROLE, object="x") + chunk(STOP, object="x") + DONE),
        ("envelope", chunk(ROLE, created=1.5) + chunk(STOP, created=1.5) + DONE),
        ("choice", chunk(ROLE) + chunk({**TEXT, "index": 1}) + chunk(STOP) + DONE),
        ("role", chunk(TEXT) + chunk(STOP) + DONE),
        ("role", chunk(ROLE) + chunk(ROLE) + chunk(STOP) + DONE),
        ("delta", chunk(ROLE) + chunk({"index": 0, "finish_reason": None}) + chunk(STOP) + DONE),
        ("finish", chunk(ROLE) + chunk(TEXT) + DONE),
        ("finish", chunk(ROLE) + chunk(STOP) + chunk(TEXT) + DONE),
        ("finish", chunk(ROLE) + chunk({**STOP, "finish_reason": ""}) + DONE),
        ("finish", chunk(ROLE) + chunk({**STOP, "finish_reason": "max_tokens"}) + DONE),
        ("finish", chunk(ROLE) + chunk({**STOP, "finish_reason": "tool_calls"}) + DONE),
        ("absent", chunk(ROLE) + chunk({**TEXT, "logprobs": None}) + chunk(STOP) + DONE),
        ("usage", chunk(ROLE) + chunk(usage=USAGE) + chunk(STOP) + DONE),
        ("usage", chunk(ROLE) + chunk(STOP) + chunk(usage=USAGE) + chunk(usage=USAGE) + DONE),
        ("usage", chunk(ROLE) + chunk(STOP, usage=USAGE) + DONE),
        ("usage", chunk(ROLE) + chunk(STOP) + chunk() + DONE),
        ("usage", chunk(ROLE) + chunk(STOP) + chunk(usage={**USAGE, "total_tokens": 9}) + DONE),
        ("error-ends", chunk(ROLE) + error() + chunk(STOP) + DONE),
        ("error-ends", chunk(ROLE) + error() + error() + DONE),
        ("error-ends", chunk(ROLE) + chunk(STOP) + error() + DONE),
        ("error", chunk(ROLE) + 'data: {"error":"m"}\n\n' + DONE),
        ("tool-call", chunk(ROLE) + chunk(call(1)) + chunk(STOP) + DONE),
        ("tool-call", chunk(ROLE) + chunk(call(0, id="")) + chunk(STOP) + DONE),
        ("tool-call", chunk(ROLE) + chunk(call(0)) + chunk(call(0)) + chunk(STOP) + DONE),
        ("tool-call", chunk(ROLE) + chunk(call(0)) + chunk(call(1, id="c0")) + chunk(STOP) + DONE),
        ("tool-call", chunk(ROLE) + chunk(call(0, function={"name": "f", "arguments": {}})) + chunk(STOP) + DONE),
        ("logprobs", chunk(ROLE) + chunk({**TEXT, "logprobs": {"content": [{"token": "a"}]}}) + chunk(STOP) + DONE),
    ],
)
def test_each_rule_is_enforced(rule: str, raw: str) -> None:
    assert rule in {finding.rule for finding in lint_chat(raw.encode())}


def test_usage_must_be_as_asked() -> None:
    plain = (chunk(ROLE) + chunk(STOP) + DONE).encode()
    full = (chunk(ROLE) + chunk(STOP) + chunk(usage=USAGE) + DONE).encode()
    assert [finding.rule for finding in lint_chat(plain, Expectation(usage=True))] == ["usage"]
    assert [finding.rule for finding in lint_chat(full, Expectation(usage=False))] == ["usage"]
    assert {finding.rule for finding in lint_chat(plain, Expectation(running_usage=True))} == {"usage"}


def test_completions_have_their_own_shape() -> None:
    legacy = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0}], "text_offset": [0]}
    text = {"index": 0, "text": "a", "finish_reason": None, "logprobs": legacy}
    stop = {"index": 0, "text": "", "finish_reason": "stop"}
    kind = {"object": "text_completion"}
    assert lint_completion((chunk(text, **kind) + chunk(stop, **kind) + DONE).encode()) == []
    chat_shaped = {**text, "logprobs": {"content": []}}
    short = {**text, "logprobs": {**legacy, "tokens": []}}
    for wrong in (chat_shaped, short):
        findings = lint_completion((chunk(wrong, **kind) + chunk(stop, **kind) + DONE).encode())
        assert {finding.rule for finding in findings} == {"logprobs"}
    assert lint_completion((chunk(ROLE) + chunk(STOP) + DONE).encode()) != []
