"""Reported log probabilities are those of the raw logits, whatever the row's parameters do to the draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native.sampling_case import TOP_WIDTH, Row, sample


def log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64) - logits.max()
    return x - np.log(np.exp(x).sum())


@given(st.integers(0, 2**32), st.sampled_from([1, 7, 300, 5000]), st.floats(0.01, 20), st.integers(0, TOP_WIDTH))
@settings(max_examples=100, deadline=None)
def test_equal_log_softmax(seed: int, vocab: int, scale: float, count: int) -> None:
    logits = (np.random.default_rng(seed).standard_normal((1, vocab)) * scale).astype(np.float32)
    wanted = log_softmax(logits[0])
    result = sample(logits, [Row(seed=seed, logprobs=count)])
    assert result.logprobs[0] == pytest.approx(wanted[result.tokens[0]], abs=2e-6, rel=1e-6)
    count = min(count, vocab)
    best = np.lexsort((np.arange(vocab), -logits[0]))[:count]
    assert result.top_ids[0, :count].tolist() == best.tolist()
    assert result.top_logprobs[0, :count] == pytest.approx(wanted[best], abs=2e-6, rel=1e-6)
    assert (result.top_ids[0, count:] == -1).all()
    assert np.isneginf(result.top_logprobs[0, count:]).all()


def test_neither_bias_nor_penalty_nor_temperature_shows() -> None:
    logits = np.array([[0.0, 1.0, 2.0, 3.0]], np.float32)
    row = Row(
        temperature=0.0,
        bias={0: 50.0, 3: float("-inf")},
        history={0: 2, 1: 1},
        repetition_penalty=1.2,
        frequency_penalty=0.3,
        logprobs=4,
    )
    result = sample(logits, [row])
    assert result.tokens[0] == 0
    assert result.logprobs[0] == pytest.approx(log_softmax(logits[0])[0], abs=1e-6)
    assert result.top_ids[0, :4].tolist() == [3, 2, 1, 0]


def test_rows_that_did_not_ask_are_left_alone() -> None:
    logits = np.zeros((2, 9), np.float32)
    result = sample(logits, [Row(), Row(logprobs=0)])
    assert result.logprobs[0] == 7
    assert (result.top_ids[0] == -7).all()
    assert result.logprobs[1] == pytest.approx(-np.log(9), abs=1e-6)


def test_equal_alternatives_come_by_lower_id() -> None:
    logits = np.zeros((1, 700), np.float32)
    assert sample(logits, [Row(logprobs=20)]).top_ids[0].tolist() == list(range(20))


def test_infinite_logits() -> None:
    logits = np.array([[np.inf, 1.0, np.inf, -np.inf, np.nan]], np.float32)
    result = sample(logits, [Row(logprobs=5)])
    assert result.tokens[0] == 0
    assert result.logprobs[0] == pytest.approx(-np.log(2), abs=1e-6)
    assert result.top_ids[0, :4].tolist() == [0, 2, 1, -1]
    assert result.top_logprobs[0, 2] == -np.inf
