"""Completions: the legacy shape."""

from __future__ import annotations

import json
import math

import pytest

from millstream.ir.deltas import Content, Error, Finish, Start, TokenLogprob, Usage
from millstream.ir.errors import ApiError
from millstream.ir.fold import fold
from millstream.ir.request import CompletionRequest, Output, Sampling
from millstream.surfaces import openai_completions
from millstream.surfaces.wire import Limits, WireOptions
from support.wire import chunks, legal, logprob, write


def decode(**fields):
    return openai_completions.decode(json.dumps({"model": "m", **fields}).encode())


def test_frames() -> None:
    encoder = openai_completions.stream_encoder(WireOptions(model="m", usage=True), response_id="cmpl-1", created=9)
    raw = write(encoder, [Start(5), Content("a"), Content(""), Finish("length", Usage(5, 1))])
    head = 'data: {"id":"cmpl-1","object":"text_completion","created":9,"model":"m","choices":['
    usage = (
        '],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":0},'
        '"completion_tokens_details":{"reasoning_tokens":0}}}\n\n'
    )
    assert raw.decode() == (
        head
        + '{"index":0,"text":"a","finish_reason":null}]}\n\n'
        + head
        + '{"index":0,"text":"","finish_reason":"length"}]}\n\n'
        + head
        + usage
        + "data: [DONE]\n\n"
    )
    legal(raw, "completions", usage=True)


def test_error_ends_the_stream() -> None:
    raw = write(openai_completions.stream_encoder(WireOptions(model="m")), [Content("a"), Error("broken")])
    assert "error" in chunks(legal(raw, "completions"))[-1]


def test_logprobs_count_characters_even_across_cut_ones() -> None:
    entries = (
        logprob("é!"),
        TokenLogprob(1, "�", b"\xe2\x82", -1.0),
        TokenLogprob(2, "�", b"\xac", -2.0),
        logprob("z"),
    )
    answer = fold([Content("é!€z", logprobs=entries), Finish("stop", Usage(1, 4))])
    body = json.loads(openai_completions.encode_answer(answer, WireOptions(model="m", logprobs=True)))
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["é!", "bytes:\\xe2\\x82", "bytes:\\xac", "z"]
    assert logprobs["text_offset"] == [0, 2, 2, 3]
    assert logprobs["token_logprobs"] == [-0.5, -1.0, -2.0, -0.5]
    assert logprobs["top_logprobs"][0] == {"é!": -0.5, "x": -2.0}
    assert logprobs["top_logprobs"][1] == {"bytes:\\xe2\\x82": -1.0}


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("", ("",)),
        ([[]], ((),)),
        ("a", ("a",)),
        (["a"], ("a",)),
        (["a", "", "b"], ("a", "", "b")),
        ([1, 2], ((1, 2),)),
        ([[1, 2]], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
    ],
    ids=str,
)
def test_prompts(prompt, wanted) -> None:
    assert decode(prompt=prompt).request.prompts == wanted


def test_request() -> None:
    call = decode(prompt="a", logprobs=3, n=2, stream=True, stop="x", return_token_ids=True)
    assert call.request == CompletionRequest(
        model="m", prompts=("a",), sampling=Sampling(max_tokens=16, stop=("x",)), output=Output(3, True), n=2
    )
    assert call.options == WireOptions(model="m", stream=True, choices=2, token_ids=True, logprobs=True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", [1]]}, "prompt[1]"),
        ({"prompt": [[1], "a"]}, "prompt[1]"),
        ({"prompt": [[1], [2, "a"]]}, "prompt[1][1]"),
        ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
        ({"prompt": [1, -2]}, "prompt[1]"),
        ({"prompt": [1, 2**40]}, "prompt[1]"),
        ({"prompt": [1, True]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": [[["a"]]]}, "prompt[0][0]"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "echo": "yes"}, "echo"),
        ({"prompt": "a", "echo": True, "max_tokens": -1}, "max_tokens"),
        ({"prompt": "a", "suffix": 3}, "suffix"),
        ({"prompt": "a", "best_of": 2, "stream": True}, "best_of"),
        ({"prompt": "a", "best_of": 2, "n": 3}, "best_of"),
        ({"prompt": "a", "best_of": 129}, "best_of"),
        ({"prompt": "a", "messages": []}, "messages"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
    ],
    ids=str,
)
def test_refusals(fields, param) -> None:
    with pytest.raises(ApiError) as caught:
        decode(**fields)
    assert caught.value.status == 400
    assert caught.value.param == param


def test_the_fields_of_old_times() -> None:
    call = decode(prompt=["a", "b"], echo=True, max_tokens=0, n=2, best_of=3, suffix="z")
    request = call.request
    assert (request.echo, request.best_of, request.suffix, request.sampling.max_tokens) == (True, 3, "z", 0)
    assert (request.choices, call.options.choices) == (4, 4)
    plain = decode(prompt="a", best_of=1, suffix="", echo=False, stream=True).request
    assert (plain.echo, plain.best_of, plain.suffix) == (False, None, None)


def test_logprobs_of_an_echoed_prompt_and_of_control_tokens() -> None:
    entries = (
        TokenLogprob(3, "ab", b"ab", math.nan),
        logprob("c"),
        TokenLogprob(9, "<turn>", b"<turn>", -1.0, shown=False),
        logprob("d"),
    )
    answer = fold([Content("abcd", logprobs=entries), Finish("stop", Usage(1, 4))])
    body = json.loads(openai_completions.encode_answer(answer, WireOptions(model="m", logprobs=True)))
    logprobs = body["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [None, -0.5, -1.0, -0.5]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["text_offset"] == [0, 2, 3, 3]


def test_limits() -> None:
    with pytest.raises(ApiError, match="n must be between 1 and 2, got 3"):
        openai_completions.decode(b'{"model":"m","prompt":"a","n":3}', Limits(choices=2))
