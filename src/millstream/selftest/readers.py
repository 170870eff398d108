"""What a client of each surface has at the end: read from the frames of a stream, or from the whole body."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

_ENDS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
"""Anthropic's words in chat's; those that mean the same are not here."""


class Called(msgspec.Struct, frozen=True):
    """A call: its id, the name of the function, and its arguments: JSON text, or the object where a surface has one."""

    id: str
    name: str
    arguments: str | dict[str, Any]


class Said(msgspec.Struct, frozen=True):
    """An answer as a client sees it. ``end``: why it ended, in chat's words. ``usage``: tokens of the prompt, those of
    them that were cached, tokens generated, those of them that were reasoning."""

    text: str
    reasoning: str
    calls: tuple[Called, ...]
    end: str | None
    usage: tuple[int, int, int, int] | None


def read_chat(raw: bytes) -> Said:
    """The only choice of a chat stream."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    end = usage = None
    for chunk in _data(raw):
        usage = chunk.get("usage", usage)
        for choice in chunk.get("choices", ()):
            delta = choice["delta"]
            for name in ("content", "reasoning_content"):
                message[name] += delta.get(name, "")
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    function = {"name": call["function"]["name"], "arguments": ""}
                    message["tool_calls"].append({"id": call["id"], "function": function})
                message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            end = choice["finish_reason"] or end
    return _chat_message(message, end, usage)


def whole_chat(raw: bytes) -> Said:
    body = json.loads(raw)
    choice = body["choices"][0]
    return _chat_message(choice["message"], choice["finish_reason"], body["usage"])


def _chat_message(message: dict[str, Any], end: str | None, usage: dict[str, Any] | None) -> Said:
    calls = tuple(
        Called(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )
    text, reasoning = message["content"] or "", message.get("reasoning_content") or ""
    return Said(text, reasoning, calls, end, _usage(usage))


def read_completions(raw: bytes) -> Said:
    """The only choice of a completions stream."""
    text, end, usage = "", None, None
    for chunk in _data(raw):
        usage = chunk.get("usage", usage)
        for choice in chunk.get("choices", ()):
            text += choice["text"]
            end = choice["finish_reason"] or end
    return Said(text, "", (), end, _usage(usage))


def whole_completions(raw: bytes) -> Said:
    body = json.loads(raw)
    choice = body["choices"][0]
    return Said(choice["text"], "", (), choice["finish_reason"], _usage(body["usage"]))


def _usage(usage: dict[str, Any] | None) -> tuple[int, int, int, int] | None:
    if usage is None:
        return None
    return (
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
        usage["completion_tokens"],
        usage["completion_tokens_details"]["reasoning_tokens"],
    )


def read_responses(raw: bytes) -> Said:
    """The response that the last event carries."""
    last: dict[str, Any] = {}
    for event in _data(raw):
        last = event
    return _response(last["response"])


def whole_responses(raw: bytes) -> Said:
    return _response(json.loads(raw))


def _response(response: dict[str, Any]) -> Said:
    items, usage = response["output"], response["usage"]

    def texts(kind: str) -> str:
        return "".join(part["text"] for item in items if item["type"] == kind for part in item["content"] or ())

    calls = tuple(
        Called(item["call_id"], item["name"], item["arguments"]) for item in items if item["type"] == "function_call"
    )
    counts = (
        usage["input_tokens"],
        usage["input_tokens_details"]["cached_tokens"],
        usage["output_tokens"],
        usage["output_tokens_details"]["reasoning_tokens"],
    )
    return Said(texts("message"), texts("reasoning"), calls, _response_end(response, called=bool(calls)), counts)


def _response_end(response: dict[str, Any], *, called: bool) -> str:
    """A response tells of calls by its items alone."""
    if response["status"] == "completed":
        return "tool_calls" if called else "stop"
    reason = str((response["incomplete_details"] or {}).get("reason"))
    return "length" if reason == "max_output_tokens" else reason


def read_messages(raw: bytes) -> Said:
    """The message that the events tell."""
    blocks: list[dict[str, str]] = []
    end = ""
    usage = None
    for event in _data(raw):
        if event["type"] == "content_block_start":
            block = event["content_block"]
            blocks.append(
                {"type": block["type"], "id": block.get("id", ""), "name": block.get("name", ""), "value": ""}
            )
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            value = next((delta[key] for key in ("text", "thinking", "partial_json") if key in delta), "")
            blocks[event["index"]]["value"] += value
        elif event["type"] == "message_delta":
            end, usage = event["delta"]["stop_reason"], event["usage"]
    calls = tuple(Called(block["id"], block["name"], block["value"]) for block in blocks if block["type"] == "tool_use")
    return Said(_joined(blocks, "text"), _joined(blocks, "thinking"), calls, _ENDS.get(end, end), _counts(usage))


def whole_messages(raw: bytes) -> Said:
    message = json.loads(raw)
    blocks, end = message["content"], message["stop_reason"]
    calls = tuple(Called(one["id"], one["name"], one["input"]) for one in blocks if one["type"] == "tool_use")
    text = "".join(one["text"] for one in blocks if one["type"] == "text")
    thinking = "".join(one["thinking"] for one in blocks if one["type"] == "thinking")
    return Said(text, thinking, calls, _ENDS.get(end, end), _counts(message["usage"]))


def _counts(usage: dict[str, Any] | None) -> tuple[int, int, int, int] | None:
    if usage is None:
        return None
    cached = usage["cache_read_input_tokens"]
    thinking = usage["output_tokens_details"]["thinking_tokens"]
    return usage["input_tokens"] + cached, cached, usage["output_tokens"], thinking


def _joined(blocks: list[dict[str, str]], kind: str) -> str:
    return "".join(block["value"] for block in blocks if block["type"] == kind)


def _data(raw: bytes) -> Iterator[dict[str, Any]]:
    for line in raw.decode().split("\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


Reader = Callable[[bytes], Said]
