"""Small readers of answers, one per surface and mode, written apart from the encoders: what a client would have."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

_MESSAGES_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "stop",
}


@dataclass
class Seen:
    """An answer as a client has it. ``parts``: kinds in order, runs of one kind once; None where the format does not
    tell it. ``calls``: (name, arguments). ``finish``: in chat's words, or error."""

    text: str = ""
    reasoning: str = ""
    calls: list[list[str]] = field(default_factory=list)
    finish: str | None = None
    refused: bool = False
    usage: tuple[int, int, int, int] | None = None
    parts: list[str] | None = None
    logprobs: list[tuple[str, float]] | None = None
    error: str | None = None

    def part(self, kind: str) -> None:
        assert self.parts is not None
        if kind == "call" or self.parts[-1:] != [kind]:
            self.parts.append(kind)


def read(surface: str, status: int, body: bytes, *, stream: bool) -> Seen:
    """The answer of a surface (chat, responses, messages)."""
    if status != 200:
        error = json.loads(body)["error"]
        return Seen(finish="error", error=error["message"])
    if stream:
        frames = [json.loads(line[6:]) for line in body.decode().split("\n") if line.startswith("data: {")]
        return {"chat": _chat_stream, "responses": _responses_stream, "messages": _messages_stream}[surface](frames)
    whole = json.loads(body)
    return {"chat": _chat, "responses": _responses, "messages": _messages}[surface](whole)


def _chat_usage(usage: dict[str, Any]) -> tuple[int, int, int, int]:
    return (
        usage["prompt_tokens"],
        usage["completion_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
        usage["completion_tokens_details"]["reasoning_tokens"],
    )


def _chat(body: dict[str, Any]) -> Seen:
    (choice,) = body["choices"]
    message = choice["message"]
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls") or ()]
    entries = (choice["logprobs"] or {"content": []})["content"]
    return Seen(
        text=message["content"] or "",
        reasoning=message.get("reasoning_content") or "",
        calls=calls,
        finish=choice["finish_reason"],
        refused=bool(message["refusal"]),
        usage=_chat_usage(body["usage"]),
        logprobs=[(entry["token"], entry["logprob"]) for entry in entries],
    )


def _chat_stream(frames: list[dict[str, Any]]) -> Seen:
    seen = Seen(logprobs=[])
    for frame in frames:
        if "error" in frame:
            seen.finish, seen.error = "error", frame["error"]["message"]
            continue
        if frame.get("usage"):
            seen.usage = _chat_usage(frame["usage"])
        for choice in frame["choices"]:
            delta = choice["delta"]
            seen.text += delta.get("content") or ""
            seen.reasoning += delta.get("reasoning_content") or ""
            seen.refused |= bool(delta.get("refusal"))
            for call in delta.get("tool_calls") or ():
                if "id" in call:
                    assert call["index"] == len(seen.calls)
                    seen.calls.append([call["function"]["name"], ""])
                seen.calls[call["index"]][1] += call["function"]["arguments"]
            seen.finish = choice["finish_reason"] or seen.finish
            entries = (choice.get("logprobs") or {"content": []})["content"]
            seen.logprobs += [(entry["token"], entry["logprob"]) for entry in entries]  # type: ignore[operator]
    return seen


def _responses(body: dict[str, Any]) -> Seen:
    seen = Seen(parts=[], logprobs=[])
    for item in body["output"]:
        _response_item(seen, item)
    return _response_end(seen, body)


def _response_item(seen: Seen, item: dict[str, Any]) -> None:
    if item["type"] == "reasoning":
        seen.part("reasoning")
        seen.reasoning += "".join(part["text"] for part in item["content"])
    elif item["type"] == "function_call":
        seen.part("call")
        seen.calls.append([item["name"], item["arguments"]])
    else:
        for part in item["content"]:
            if part["type"] == "refusal":
                seen.refused = True
                continue
            seen.part("text")
            seen.text += part["text"]
            assert seen.logprobs is not None
            seen.logprobs += [(entry["token"], entry["logprob"]) for entry in part["logprobs"] or ()]


def _response_end(seen: Seen, body: dict[str, Any]) -> Seen:
    if body["status"] == "failed":
        seen.finish, seen.error = "error", body["error"]["message"]
        return seen
    usage = body["usage"]
    seen.usage = (
        usage["input_tokens"],
        usage["output_tokens"],
        usage["input_tokens_details"]["cached_tokens"],
        usage["output_tokens_details"]["reasoning_tokens"],
    )
    if body["status"] == "incomplete":
        assert body["incomplete_details"]["reason"] == "max_output_tokens"
        seen.finish = "length"
    else:
        seen.finish = "tool_calls" if seen.calls else "stop"
    return seen


def _responses_stream(frames: list[dict[str, Any]]) -> Seen:
    """From the deltas alone; the terminal event must say the same again."""
    seen = Seen(parts=[], logprobs=[])
    calls: dict[int, list[str]] = {}
    for frame in frames:
        match frame["type"].removeprefix("response."):
            case "output_text.delta":
                seen.part("text")
                seen.text += frame["delta"]
                seen.logprobs += [(entry["token"], entry["logprob"]) for entry in frame["logprobs"]]  # type: ignore[operator]
            case "reasoning_text.delta":
                seen.part("reasoning")
                seen.reasoning += frame["delta"]
            case "refusal.delta":
                seen.refused = True
            case "output_item.added" if frame["item"]["type"] == "function_call":
                seen.part("call")
                calls[frame["output_index"]] = [frame["item"]["name"], ""]
                seen.calls.append(calls[frame["output_index"]])
            case "function_call_arguments.delta":
                calls[frame["output_index"]][1] += frame["delta"]
    last = frames[-1]["response"]
    again = _responses(last)
    assert (again.text, again.reasoning, again.calls) == (seen.text, seen.reasoning, seen.calls)
    assert again.logprobs == seen.logprobs
    return _response_end(seen, last)


def _messages_usage(usage: dict[str, Any]) -> tuple[int, int, int, int]:
    cached = usage["cache_read_input_tokens"]
    thinking = usage["output_tokens_details"]["thinking_tokens"]
    return (usage["input_tokens"] + cached, usage["output_tokens"], cached, thinking)


def _messages(body: dict[str, Any]) -> Seen:
    seen = Seen(parts=[])
    for block in body["content"]:
        if block["type"] == "text":
            seen.part("text")
            seen.text += block["text"]
        elif block["type"] == "thinking":
            seen.part("reasoning")
            seen.reasoning += block["thinking"]
        else:
            seen.part("call")
            seen.calls.append([block["name"], json.dumps(block["input"])])
    seen.finish = _MESSAGES_REASONS[body["stop_reason"]]
    seen.refused = body["stop_reason"] == "refusal"
    seen.usage = _messages_usage(body["usage"])
    return seen


def _messages_stream(frames: list[dict[str, Any]]) -> Seen:
    seen = Seen(parts=[])
    assert seen.parts is not None
    blocks: dict[int, list[str]] = {}
    for frame in frames:
        match frame["type"]:
            case "content_block_start":
                kind = {"text": "text", "thinking": "reasoning", "tool_use": "call"}[frame["content_block"]["type"]]
                seen.part(kind)
                if kind == "call":
                    blocks[frame["index"]] = [frame["content_block"]["name"], ""]
                    seen.calls.append(blocks[frame["index"]])
            case "content_block_delta":
                delta = frame["delta"]
                if delta["type"] == "text_delta":
                    seen.text += delta["text"]
                elif delta["type"] == "thinking_delta":
                    seen.reasoning += delta["thinking"]
                elif delta["type"] == "input_json_delta":
                    blocks[frame["index"]][1] += delta["partial_json"]
            case "message_delta":
                seen.finish = _MESSAGES_REASONS[frame["delta"]["stop_reason"]]
                seen.refused = frame["delta"]["stop_reason"] == "refusal"
                seen.usage = _messages_usage(frame["usage"])
            case "error":
                seen.finish, seen.error = "error", frame["error"]["message"]
    return seen
