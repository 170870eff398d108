"""Laws of all wire formats: every legal stream is written legally, and folds to the answer that is not streamed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.deltas import Delta, Error
from millstream.ir.fold import fold
from millstream.surfaces import openai_chat, openai_completions
from millstream.surfaces.wire import Surface, WireOptions
from support.wire import answers, chunks, fold_chat, fold_completion, legal, write

BOTH = pytest.mark.parametrize("surface", [openai_chat, openai_completions], ids=lambda surface: surface.NAME)
OPTIONS = st.builds(
    WireOptions,
    model=st.just("m"),
    stream=st.just(True),
    choices=st.integers(1, 3),
    usage=st.booleans(),
    running_usage=st.booleans(),
    token_ids=st.booleans(),
    logprobs=st.booleans(),
)


@BOTH
@given(data=st.data(), options=OPTIONS)
def test_legal_streams_are_written_legally(surface: Surface, data: st.DataObject, options: WireOptions) -> None:
    deltas = data.draw(answers(choices=options.choices))
    raw = write(surface.stream_encoder(options), deltas)
    legal(raw, surface.NAME, choices=options.choices, usage=options.usage, running_usage=options.running_usage)


@BOTH
@given(data=st.data(), options=OPTIONS)
def test_failed_streams_are_written_legally(surface: Surface, data: st.DataObject, options: WireOptions) -> None:
    deltas: list[Delta] = data.draw(answers(choices=options.choices))
    kept = data.draw(st.integers(0, len(deltas) - 1))
    raw = write(surface.stream_encoder(options), [*deltas[:kept], Error("broken")])
    legal(raw, surface.NAME, choices=options.choices, usage=options.usage, running_usage=options.running_usage)
    assert "error" in chunks(raw)[-1]
    assert all(chunk.get("choices") != [] for chunk in chunks(raw))


@given(data=st.data(), options=OPTIONS)
def test_chat_stream_folds_to_the_whole_answer(data: st.DataObject, options: WireOptions) -> None:
    deltas = data.draw(answers(choices=options.choices))
    raw = write(openai_chat.stream_encoder(options), deltas)
    whole = json.loads(openai_chat.encode_answer(fold(deltas), options))
    folded = fold_chat(raw)
    assert len(whole["choices"]) == len(folded) == options.choices
    for choice in whole["choices"]:
        message, one = choice["message"], folded[choice["index"]]
        assert one["content"] == (message["content"] or "")
        assert one["reasoning_content"] == message.get("reasoning_content", "")
        assert one["refusal"] == (message["refusal"] or "")
        assert one["finish_reason"] == choice["finish_reason"]
        assert one["token_ids"] == choice.get("token_ids", [])
        assert one["logprobs"] == (choice["logprobs"] or {"content": []})["content"]
        calls = [(call["id"], call["function"]["name"], call["arguments"]) for call in one["calls"].values()]
        wanted = [(call["id"], *call["function"].values()) for call in message.get("tool_calls", ())]
        assert calls == wanted
    if options.usage:
        assert chunks(raw)[-1]["usage"] == whole["usage"]


@given(data=st.data(), options=OPTIONS)
def test_completion_stream_folds_to_the_whole_answer(data: st.DataObject, options: WireOptions) -> None:
    deltas = data.draw(answers(choices=options.choices, tools=False))
    raw = write(openai_completions.stream_encoder(options), deltas)
    whole = json.loads(openai_completions.encode_answer(fold(deltas), options))
    folded = fold_completion(raw)
    assert len(whole["choices"]) == len(folded) == options.choices
    for choice in whole["choices"]:
        one = folded[choice["index"]]
        assert one["text"] == choice["text"]
        assert one["finish_reason"] == choice["finish_reason"]
        assert one["logprobs"] == (choice["logprobs"] or {})
    if options.usage:
        assert chunks(raw)[-1]["usage"] == whole["usage"]
