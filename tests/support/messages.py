"""What a client makes of the events of a Messages stream."""

from __future__ import annotations

import json
from typing import Any

from millstream.lint.messages_stream import lint_messages

_JOINED = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def legal_messages(raw: bytes, **how: Any) -> bytes:
    """The stream itself, if the lint has nothing to say against it."""
    assert raw.decode().splitlines() == raw.decode().split("\n")[:-1], "a client that cuts by splitlines is lost"
    assert lint_messages(raw, **how) == []
    return raw


def events(raw: bytes) -> list[dict[str, Any]]:
    """The JSON of every event but pings."""
    data = [line.removeprefix("data: ") for line in raw.decode().split("\n") if line.startswith("data: ")]
    return [event for event in map(json.loads, data) if event["type"] != "ping"]


def fold_messages(raw: bytes) -> dict[str, Any]:
    """The message that the events tell; the input of a tool is its JSON text."""
    message: dict[str, Any] = {}
    for event in events(raw):
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                message["content"].append(event["content_block"])
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                if delta["type"] == "input_json_delta":
                    block["input"] = (block["input"] or "") + delta["partial_json"]
                else:
                    block[_JOINED[delta["type"]]] += delta[_JOINED[delta["type"]]]
            case "message_delta":
                message |= event["delta"]
                message["usage"] = event["usage"]
    return message
