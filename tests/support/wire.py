"""Streams for the wire formats' tests, and what a client makes of the frames."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from millstream.ir.deltas import (
    Content,
    Delta,
    Finish,
    Reasoning,
    Refusal,
    Start,
    TokenLogprob,
    ToolCallArgs,
    ToolCallStart,
    TopLogprob,
    Usage,
)
from millstream.lint.openai_stream import Expectation, lint_chat, lint_completion
from millstream.surfaces.wire import StreamEncoder

TEXT = st.text('ab"\\\n\r\t\x00\x7fé€😀\u0085\u2028\u2029', max_size=5)


def logprob(text: str, value: float = -0.5) -> TokenLogprob:
    raw = text.encode()
    return TokenLogprob(7, text, raw, value, (TopLogprob(7, text, raw, value), TopLogprob(8, "x", b"x", -2.0)))


@st.composite
def answers(draw: st.DrawFn, *, choices: int, tools: bool = True) -> list[Delta]:
    """A legal stream whose every text delta is one token, with ids, log probabilities and true usage."""
    out: list[Delta] = [Start(5, 2)]
    tokens, calls = [0] * choices, [0] * choices
    for choice in draw(st.lists(st.integers(0, choices - 1), max_size=20)):
        text = draw(TEXT)
        ids = (tokens[choice],)
        kind = draw(st.sampled_from(["content", "content", "reasoning", "start", "args"] if tools else ["content"]))
        if kind == "content":
            out.append(Content(text, choice, ids, (logprob(text),)))
        elif kind == "reasoning":
            out.append(Reasoning(text, choice, ids, (logprob(text),)))
        elif kind == "start" or not calls[choice]:
            out.append(ToolCallStart(calls[choice], f"call_{choice}_{calls[choice]}", "name", choice, ids))
            calls[choice] += 1
        else:
            out.append(ToolCallArgs(draw(st.integers(0, calls[choice] - 1)), text, choice, ids))
        tokens[choice] += 1
    for choice in draw(st.permutations(range(choices))):
        if tools and not calls[choice] and draw(st.booleans()):
            out.append(Refusal("no", choice))
        usage = Usage(5, tokens[choice] + 1, 2)
        reason = "tool_calls" if calls[choice] else draw(st.sampled_from(["stop", "length"]))
        out.append(Finish(reason, usage, choice, (tokens[choice],), (logprob("<end>"),)))
    return out


def write(encoder: StreamEncoder, deltas: list[Delta]) -> bytes:
    """All frames of a stream."""
    return encoder.start() + b"".join(encoder.encode(delta) for delta in deltas) + encoder.end()


def chunks(raw: bytes) -> list[dict[str, Any]]:
    """The JSON of every data frame but `[DONE]`."""
    frames = [frame for frame in raw.decode().split("\n\n") if frame.startswith("data: ")]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames if frame != "data: [DONE]"]


def legal(raw: bytes, surface: str, **expect: Any) -> bytes:
    """The stream itself, if the lint has nothing to say against it."""
    assert raw.decode().splitlines() == raw.decode().split("\n")[:-1], "a client that cuts by splitlines is lost"
    lint = {"chat_completions": lint_chat, "completions": lint_completion}[surface]
    assert lint(raw, Expectation(**expect)) == []
    return raw


def fold_chat(raw: bytes) -> dict[int, dict[str, Any]]:
    """What a client has after a chat stream, per choice."""
    folded: dict[int, dict[str, Any]] = {}
    for choice in (choice for chunk in chunks(raw) for choice in chunk.get("choices", ())):
        one = folded.setdefault(choice["index"], {"calls": {}, "logprobs": [], "token_ids": []})
        delta = choice["delta"]
        for key in ("content", "reasoning_content", "refusal"):
            one[key] = one.get(key, "") + delta.get(key, "")
        for call in delta.get("tool_calls", ()):
            known = one["calls"].setdefault(call["index"], {"arguments": "", **call})
            known["arguments"] += call["function"]["arguments"]
        one["logprobs"] += choice.get("logprobs", {}).get("content", [])
        one["token_ids"] += choice.get("token_ids", [])
        one["finish_reason"] = choice["finish_reason"]
    return folded


def fold_completion(raw: bytes) -> dict[int, dict[str, Any]]:
    """What a client has after a completions stream, per choice."""
    folded: dict[int, dict[str, Any]] = {}
    for choice in (choice for chunk in chunks(raw) for choice in chunk.get("choices", ())):
        one = folded.setdefault(choice["index"], {"text": "", "logprobs": {}})
        one["text"] += choice["text"]
        for key, column in choice.get("logprobs", {}).items():
            one["logprobs"][key] = one["logprobs"].get(key, []) + column
        one["finish_reason"] = choice["finish_reason"]
    return folded
