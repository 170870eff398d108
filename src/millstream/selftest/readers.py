"""What a client of each surface has at the end: read from the frames of a stream, or from the whole body."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from millstream.surfaces.partial_json import as_object


class Said(msgspec.Struct, frozen=True):
    """An answer as a client sees it. ``calls``: name and arguments (JSON text). ``end``: why it ended, in the
    surface's words."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    end: str | None


def read_chat(raw: bytes) -> Said:
    """The only choice of a chat stream."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    end = None
    for chunk in _data(raw):
        for choice in chunk.get("choices", ()):
            delta = choice["delta"]
            for name in ("content", "reasoning_content"):
                message[name] += delta.get(name, "")
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"function": {"name": call["function"]["name"], "arguments": ""}})
                message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            end = choice["finish_reason"] or end
    return _chat_message(message, end)


def whole_chat(raw: bytes) -> Said:
    choice = json.loads(raw)["choices"][0]
    return _chat_message(choice["message"], choice["finish_reason"])


def _chat_message(message: dict[str, Any], end: str | None) -> Said:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = tuple((function["name"], function["arguments"]) for function in functions)
    return Said(message["content"] or "", message.get("reasoning_content") or "", calls, end)


def read_completions(raw: bytes) -> Said:
    """The only choice of a completions stream."""
    choices = [choice for chunk in _data(raw) for choice in chunk.get("choices", ())]
    ends = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return Said("".join(choice["text"] for choice in choices), "", (), ends[-1] if ends else None)


def whole_completions(raw: bytes) -> Said:
    choice = json.loads(raw)["choices"][0]
    return Said(choice["text"], "", (), choice["finish_reason"])


def read_responses(raw: bytes) -> Said:
    """The response that the last event carries."""
    last: dict[str, Any] = {}
    for event in _data(raw):
        last = event
    return _response(last["response"])


def whole_responses(raw: bytes) -> Said:
    return _response(json.loads(raw))


def _response(response: dict[str, Any]) -> Said:
    items = response["output"]

    def texts(kind: str) -> str:
        return "".join(part["text"] for item in items if item["type"] == kind for part in item["content"] or ())

    calls = tuple((item["name"], item["arguments"]) for item in items if item["type"] == "function_call")
    return Said(texts("message"), texts("reasoning"), calls, response["status"])


def read_messages(raw: bytes) -> Said:
    """The message that the events tell."""
    blocks: list[dict[str, str]] = []
    end = None
    for event in _data(raw):
        if event["type"] == "content_block_start":
            block = event["content_block"]
            blocks.append({"type": block["type"], "name": block.get("name", ""), "value": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            value = next((delta[key] for key in ("text", "thinking", "partial_json") if key in delta), "")
            blocks[event["index"]]["value"] += value
        elif event["type"] == "message_delta":
            end = event["delta"]["stop_reason"]
    calls = tuple(
        (block["name"], _canonical(bytes(as_object(block["value"])))) for block in blocks if block["type"] == "tool_use"
    )
    return Said(_joined(blocks, "text"), _joined(blocks, "thinking"), calls, end)


def whole_messages(raw: bytes) -> Said:
    message = json.loads(raw)
    blocks = message["content"]
    calls = tuple((one["name"], _canonical(json.dumps(one["input"]))) for one in blocks if one["type"] == "tool_use")
    text = "".join(one["text"] for one in blocks if one["type"] == "text")
    thinking = "".join(one["thinking"] for one in blocks if one["type"] == "thinking")
    return Said(text, thinking, calls, message["stop_reason"])


def _joined(blocks: list[dict[str, str]], kind: str) -> str:
    return "".join(block["value"] for block in blocks if block["type"] == kind)


def _canonical(text: str | bytes) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def _data(raw: bytes) -> Iterator[dict[str, Any]]:
    for line in raw.decode().split("\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


Reader = Callable[[bytes], Said]
