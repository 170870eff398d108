"""The judge of Messages streams: each rule catches the stream that breaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.lint.messages_stream import lint_messages

USAGE = {"input_tokens": 1, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": USAGE,
}


def event(kind: str, **body: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n"


def start(**message: Any) -> str:
    return event("message_start", message={**MESSAGE, **message})


def block(index: int, kind: str = "text", **members: Any) -> str:
    shapes: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"id": f"t{index}", "name": "f", "input": {}},
    }
    return event("content_block_start", index=index, content_block={"type": kind, **shapes.get(kind, {}), **members})


def delta(index: int, kind: str = "text_delta", **members: Any) -> str:
    return event("content_block_delta", index=index, delta={"type": kind, **(members or {"text": "a"})})


def stop(index: int) -> str:
    return event("content_block_stop", index=index)


def reason(value: str | None = "end_turn", sequence: str | None = None, **body: Any) -> str:
    told = {"stop_reason": value, "stop_sequence": sequence}
    return event("message_delta", **{"delta": told, "usage": {**USAGE, "output_tokens": 3}, **body})


def without(frame: str, key: str) -> str:
    head, data = frame.split("data: ")
    body = json.loads(data)
    body["content_block"].pop(key)
    return f"{head}data: {json.dumps(body)}\n\n"


END = event("message_stop")
PING = event("ping")
TEXT = block(0) + delta(0) + stop(0)
SIGNED = delta(0, "signature_delta", signature="s")
ARGS = delta(0, "input_json_delta", partial_json="{}")
ERROR = event("error", error={"type": "api_error", "message": "m"})


def test_legal_streams_pass() -> None:
    thought = block(0, "thinking") + delta(0, "thinking_delta", thinking="a") + SIGNED + stop(0)
    call = block(1, "tool_use") + delta(1, "input_json_delta", partial_json="{}") + stop(1)
    for raw in (
        PING + start() + PING + TEXT + ": hello\n\n" + reason() + END,
        start() + thought + call + reason("tool_use") + END,
        start() + reason("stop_sequence", "x") + END,
        start() + block(0) + ERROR,
        ERROR,
    ):
        assert lint_messages(raw.encode()) == []


@pytest.mark.parametrize(
    ("rule", "raw"),
    [
        ("framing", start() + TEXT + reason() + END[:-1]),
        ("json", start() + "event: ping\ndata: {\n\n" + reason() + END),
        ("event-name", start() + PING.replace("event: ping", "event: pong") + reason() + END),
        ("event", start() + event("text") + reason() + END),
        ("start-first", TEXT + reason() + END),
        ("start-first", start() + start() + reason() + END),
        ("message", start(content=[{}]) + reason() + END),
        ("message", event("message_start", message={k: v for k, v in MESSAGE.items() if k != "stop_sequence"}) + END),
        ("usage", start(usage=None) + reason() + END),
        ("usage", start(usage={**USAGE, "input_tokens": 9}) + reason() + END),
        ("usage", start() + reason(usage={"output_tokens": 3}) + END),
        ("one-block", start() + block(0) + block(1) + stop(1) + reason() + END),
        ("one-block", start() + block(0) + delta(0) + reason() + END),
        ("one-block", start() + delta(0) + reason() + END),
        ("one-block", start() + TEXT + delta(0) + reason() + END),
        ("index", start() + block(1) + stop(1) + reason() + END),
        ("index", start() + block(0) + delta(1) + stop(0) + reason() + END),
        ("index", start() + TEXT + TEXT + reason() + END),
        ("delta-type", start() + block(0, "tool_use") + ARGS + delta(0) + stop(0) + reason("tool_use") + END),
        ("delta-type", start() + block(0) + ARGS + stop(0) + reason() + END),
        ("delta", start() + block(0) + delta(0, "text_delta", text=None) + stop(0) + reason() + END),
        ("block-shape", start() + without(block(0, "tool_use"), "input") + stop(0) + reason("tool_use") + END),
        ("block-shape", start() + without(block(0), "text") + stop(0) + reason() + END),
        ("block-shape", start() + without(block(0, "thinking"), "signature") + SIGNED + stop(0) + reason() + END),
        ("block-shape", start() + block(0, "tool_use", id="") + stop(0) + reason("tool_use") + END),
        ("signature", start() + block(0, "thinking") + stop(0) + reason() + END),
        ("signature", start() + block(0, "thinking") + SIGNED + SIGNED + stop(0) + reason() + END),
        ("block-order", start() + reason() + TEXT + END),
        ("reason", start() + TEXT + END),
        ("reason", start() + TEXT + reason() + reason() + END),
        ("reason", start() + TEXT + reason(None) + END),
        ("reason", start() + TEXT + reason("stop") + END),
        ("reason", start() + TEXT + reason("stop_sequence") + END),
        ("reason", start() + TEXT + reason("end_turn", "x") + END),
        ("reason", start() + TEXT + reason("tool_use") + END),
        ("reason", start() + TEXT + reason(delta={"stop_reason": "end_turn"}) + END),
        ("arguments", start() + block(0, "tool_use") + delta(0, "input_json_delta", partial_json='{"a') + stop(0)
         + reason("tool_use") + END),
        ("stop-last", start() + TEXT + reason()),
        ("stop-last", start() + TEXT + reason() + END + END),
        ("stop-last", start() + TEXT + reason() + END + PING),
        ("error-ends", start() + ERROR + reason() + END),
        ("error-ends", start() + TEXT + reason() + ERROR),
        ("error", start() + event("error", error={"type": "server_error", "message": "m"})),
        ("error", start() + event("error", error="m")),
    ],
)  # fmt: skip
def test_each_rule_is_enforced(rule: str, raw: str) -> None:
    assert rule in {finding.rule for finding in lint_messages(raw.encode())}
