"""What is recorded comes back as it was, and whether two runs are the same is told right."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.protocol import SamplingParams, ThinkingBudget, TokenRequest
from millstream.journal.compare import Rerun, difference, request_again
from millstream.journal.records import Sequence, named, restored, token_request

IDS = st.lists(st.integers(0, 1 << 20), max_size=8)
SAMPLING = st.builds(
    SamplingParams,
    temperature=st.floats(0, 2),
    top_k=st.integers(0, 100),
    seed=st.integers(0, (1 << 64) - 1),
    logit_bias=st.dictionaries(st.integers(0, 1000), st.floats(-100, 100), max_size=3),
    logprobs=st.none() | st.integers(0, 20),
)
REQUESTS = st.builds(
    TokenRequest,
    id=st.text(max_size=8),
    prompt=IDS,
    sampling=SAMPLING,
    max_tokens=st.integers(0, 100),
    min_tokens=st.integers(0, 100),
    stop_ids=IDS.map(tuple),
    choice=st.integers(0, 5),
    grammar=st.none() | st.text(max_size=8),
    pooling=st.none() | st.sampled_from(["mean", "cls", "last"]),
    thinking=st.none() | st.builds(ThinkingBudget, st.integers(1, 9), st.text(max_size=3), IDS),
    speculation=st.booleans(),
)


@given(REQUESTS)
def test_a_request_comes_back_from_json(request: TokenRequest) -> None:
    sequence = Sequence(request=named(request))
    line = msgspec.json.encode(sequence)
    assert token_request(msgspec.json.decode(line, type=Sequence)) == request


def test_what_another_version_recorded_is_refused_by_name() -> None:
    data = named(TokenRequest("a", [1], SamplingParams(), 3))
    with pytest.raises(ValueError, match="unknown field 'colour' of TokenRequest"):
        restored(TokenRequest, {**data, "colour": 1})
    with pytest.raises(ValueError, match="not a TokenRequest"):
        restored(TokenRequest, {**data, "prompt": "text"})
    with pytest.raises(ValueError, match="not a TokenRequest"):
        restored(TokenRequest, {})


def recorded(tokens: list[int], finish: str | None, **fields: object) -> Sequence:
    request = TokenRequest("a", [1], SamplingParams(), 20, min_tokens=9)
    return msgspec.convert({"request": named(request), "tokens": tokens, "finish": finish, **fields}, Sequence)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_the_first_difference_is_the_first(before: list[int], now: list[int]) -> None:
    found = difference(recorded(before, "length"), Rerun(now, "length"))
    if before == now:
        assert found is None
    else:
        assert found is not None
        assert found.position is not None
        assert before[: found.position] == now[: found.position]
        assert before[found.position : found.position + 1] != now[found.position : found.position + 1]


def test_ends_are_compared_only_if_it_ended() -> None:
    assert difference(recorded([1], "stop"), Rerun([1], "length")) is not None
    assert difference(recorded([1], None), Rerun([1], "length")) is None
    assert difference(recorded([1], "length"), Rerun([1], "error", "the engine failed")) == (
        None,
        "finish length",
        "the engine failed",
    )


def test_vectors_are_compared() -> None:
    assert difference(recorded([], "length", embedding="aa"), Rerun([], "length", embedding="aa")) is None
    assert difference(recorded([], "length", embedding="aa"), Rerun([], "length", embedding="bb")) is not None


@pytest.mark.parametrize("finish", [None, "timeout", "error"])
def test_what_was_cut_is_asked_for_as_far_as_it_came(finish: str | None) -> None:
    again = request_again(recorded([5, 6, 7], finish))
    assert again is not None
    assert (again.max_tokens, again.min_tokens) == (3, 3)
    assert request_again(recorded([], finish)) is None
    whole = request_again(recorded([5], "stop"))
    assert whole is not None
    assert (whole.max_tokens, whole.min_tokens) == (20, 9)
