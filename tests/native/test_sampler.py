"""The sampler against the plain reference, parameter by parameter and in random combinations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native.sampling_case import Row, adjusted, expected, probabilities, sample, sample_one

EDGE = 1e-6  # draws closer than this to the boundary of two tokens may fall to either: the reference uses another exp


def random_logits(seed: int, vocab: int, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(vocab) * scale).astype(np.float32)


def check_draws(logits: np.ndarray, row: Row, draws: int = 200) -> None:
    rows = [replace(row, position=position) for position in range(draws)]
    tokens = sample(np.tile(logits, (draws, 1)), rows).tokens
    certain = 0
    for one, token in zip(rows, tokens, strict=True):
        wanted, distance = expected(logits, one)
        if distance > EDGE:
            assert token == wanted
            certain += 1
    assert certain > draws * 0.8


def short(value: object) -> str | None:
    """A test id that names only what is not neutral, and sizes instead of contents."""
    if not isinstance(value, Row):
        return None
    neutral = vars(Row())
    named = {name: entry for name, entry in vars(value).items() if entry != neutral[name]}
    return ",".join(f"{k}={len(v) if hasattr(v, '__len__') else v}" for k, v in named.items()) or "neutral"


PARAMETERS = [
    Row(),
    Row(temperature=0.0),
    Row(temperature=0.3),
    Row(temperature=2.5),
    Row(top_k=1),
    Row(top_k=7),
    Row(top_k=300),
    Row(top_k=10**9),
    Row(top_p=0.0),
    Row(top_p=0.5),
    Row(top_p=0.95),
    Row(min_p=0.05),
    Row(min_p=1.0),
    Row(min_p=5.0),
    Row(temperature=1.7, top_k=60, top_p=0.8, min_p=0.02),
    Row(bias={3: 9.0, 100: 8.5, 7: -100.0}),
    Row(bias={3: float("-inf")}),
    Row(temperature=0.0, bias={999: 50.0}),
    Row(repetition_penalty=1.8, history=dict.fromkeys(range(0, 1000, 2), 0)),
    Row(repetition_penalty=0.5, history=dict.fromkeys(range(0, 1000, 3), 3)),
    Row(presence_penalty=2.0, history={i: i % 3 for i in range(1000)}),
    Row(frequency_penalty=-0.7, history={i: i % 5 for i in range(1000)}),
    Row(allowed=frozenset(range(5, 60))),
    Row(allowed=frozenset([999])),
    Row(temperature=0.0, allowed=frozenset([31, 32, 63, 64, 511])),
]


@pytest.mark.parametrize("row", PARAMETERS, ids=short)
def test_each_parameter_agrees_with_the_reference(row: Row) -> None:
    check_draws(random_logits(1, 1000), replace(row, seed=99))


@pytest.mark.parametrize("scale", [0.01, 1.0, 12.0])
@pytest.mark.parametrize(
    "row", [Row(), Row(top_k=500), Row(top_p=0.9), Row(top_k=3000, top_p=0.99, min_p=1e-4)], ids=short
)
def test_large_vocabularies_flat_and_peaked(row: Row, scale: float) -> None:
    check_draws(random_logits(2, 20_011, scale), row, draws=40)


@pytest.mark.parametrize("order", [1, -1])
def test_top_k_of_sorted_logits(order: int) -> None:
    """Rising logits make every block a better one than the last."""
    logits = np.linspace(-4, 4, 5000, dtype=np.float32)[::order].copy()
    check_draws(logits, Row(top_k=50, temperature=3.0), draws=50)


def rows_over(vocab: int) -> st.SearchStrategy[Row]:
    tokens = st.integers(0, vocab - 1)
    return st.builds(
        Row,
        temperature=st.just(0.0) | st.floats(0.05, 4.0),
        top_k=st.integers(0, vocab + 2),
        top_p=st.just(1.0) | st.floats(0.0, 1.0),
        min_p=st.just(0.0) | st.floats(0.0, 1.0),
        repetition_penalty=st.just(1.0) | st.floats(0.5, 2.0),
        presence_penalty=st.just(0.0) | st.floats(-2.0, 2.0),
        frequency_penalty=st.just(0.0) | st.floats(-2.0, 2.0),
        seed=st.integers(0, 2**64 - 1),
        choice=st.integers(0, 2**32 - 1),
        position=st.integers(0, 2**32 - 1),
        bias=st.dictionaries(tokens, st.just(float("-inf")) | st.floats(-10, 10, width=32), max_size=3),
        history=st.dictionaries(tokens, st.integers(0, 4), max_size=6),
        allowed=st.none() | st.frozensets(tokens, min_size=1),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, Row]:
    vocab = draw(st.sampled_from([1, 2, 15, 16, 17, 33, 255, 256, 257, 600]))
    levels = draw(st.sampled_from([3, 50, 10_000]))  # few levels make many ties
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = (rng.integers(-levels, levels + 1, vocab) * (6.0 / levels)).astype(np.float32)
    return logits, draw(rows_over(vocab))


@given(cases())
@settings(max_examples=3 * settings.default.max_examples)
def test_random_combinations_agree_with_the_reference(case: tuple[np.ndarray, Row]) -> None:
    logits, row = case
    if not np.isfinite(adjusted(logits, row)).any():
        return
    token = sample_one(logits, row)
    wanted, distance = expected(logits, row)
    assert token == wanted or distance < EDGE or on_filter_edge(logits, row)


def on_filter_edge(logits: np.ndarray, row: Row) -> bool:
    """Whether rounding decides which token min_p or top_p drops: small changes of the bounds change the set."""
    kept = [
        set(np.flatnonzero(probabilities(logits, replace(row, top_p=row.top_p * f, min_p=row.min_p * g))))
        for f in (1 - 1e-5, 1 + 1e-5)
        for g in (1 - 1e-5, 1 + 1e-5)
    ]
    return any(one != kept[0] for one in kept)


@given(cases())
@settings(max_examples=100, deadline=None)
def test_neutral_values_change_nothing(case: tuple[np.ndarray, Row]) -> None:
    """Filters at their neutral value, a full mask, zero biases and a history without penalties change nothing."""
    logits, row = case
    vocab = len(logits)
    bare = Row(temperature=row.temperature, seed=row.seed, choice=row.choice, position=row.position)
    dressed = replace(
        bare,
        top_k=vocab,
        top_p=1.0,
        min_p=0.0,
        bias=dict.fromkeys(row.bias, 0.0),
        history=row.history,
        allowed=frozenset(range(vocab)),
    )
    assert sample_one(logits, bare) == sample_one(logits, dressed)


def test_top_p_sums_after_min_p_and_top_k() -> None:
    """Of 0.4, 0.3, 0.2, 0.1 top_k 2 leaves 4/7 and 3/7: a top_p of 0.5 is then met by the first alone."""
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    rows = [Row(top_k=2, top_p=0.5, position=position) for position in range(100)]
    assert set(sample(np.tile(logits, (100, 1)), rows).tokens.tolist()) == {0}
    rows = [Row(top_p=0.5, position=position) for position in range(100)]
    assert set(sample(np.tile(logits, (100, 1)), rows).tokens.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (Row(temperature=0.0), {2}),
        (Row(top_k=1), {2}),
        (Row(top_k=3), {2, 5, 300}),
        (Row(top_p=0.3), {2, 5}),
        (Row(min_p=0.5), {2, 5, 300, 301, 599}),
        (Row(top_k=3, allowed=frozenset([0, 5, 301, 599])), {5, 301, 599}),
    ],
    ids=short,
)
def test_equal_logits_rank_by_lower_id(row: Row, kept: set[int]) -> None:
    logits = np.full(600, -60.0, np.float32)
    logits[[2, 5, 300, 301, 599]] = 1.5
    rows = [replace(row, position=position) for position in range(150)]
    assert set(sample(np.tile(logits, (150, 1)), rows).tokens.tolist()) == kept
