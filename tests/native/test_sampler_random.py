"""The random generator, the frequencies of draws, and that a draw depends on (seed, choice, position) alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.native import _core
from native.sampling_case import Row, probabilities, sample, sample_one

PHILOX_TEST_VECTORS = [
    # seed (key), choice, position (counter words 1 and 0), first two words of the block
    (0, 0, 0, 0x6627E8D5, 0xE169C58D),
]


def reference_philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 after the pseudo code of the SC'11 paper."""
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * counter[0], 2**32)
        high1, low1 = divmod(0xCD9E8D57 * counter[2], 2**32)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter


def as_uniform(low: int, high: int) -> float:
    return ((high << 32 | low) >> 11) / 2**53


def test_reference_matches_the_published_vectors() -> None:
    """Known answers of the Random123 distribution."""
    assert reference_philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert reference_philox([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert reference_philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]


@pytest.mark.parametrize(("seed", "choice", "position", "low", "high"), PHILOX_TEST_VECTORS)
def test_known_numbers(seed: int, choice: int, position: int, low: int, high: int) -> None:
    assert _core.philox(seed, choice, position) == as_uniform(low, high)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_numbers_are_those_of_philox(seed: int, choice: int, position: int) -> None:
    low, high, *_ = reference_philox([position, choice, 0, 0], [seed % 2**32, seed >> 32])
    assert _core.philox(seed, choice, position) == as_uniform(low, high)


@pytest.mark.parametrize(
    "row", [Row(seed=5), Row(seed=6, temperature=0.7, top_p=0.9), Row(seed=7, top_k=12, min_p=0.01)], ids=str
)
def test_frequencies_follow_the_distribution(row: Row) -> None:
    """Pearson's chi-square over 20,000 draws; the bound is about five standard deviations above its mean."""
    draws = 20_000
    logits = np.random.default_rng(8).standard_normal(40).astype(np.float32) * 2
    tokens = sample(np.tile(logits, (draws, 1)), [replace(row, position=position) for position in range(draws)]).tokens
    wanted = probabilities(logits, row) * draws
    seen = np.bincount(tokens, minlength=40)
    assert (seen[wanted == 0] == 0).all()
    common = wanted >= 5
    chi_square = float((((seen - wanted) ** 2)[common] / wanted[common]).sum())
    freedom = int(common.sum()) - 1
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)


def test_choices_and_seeds_draw_apart() -> None:
    logits = np.zeros(1000, np.float32)
    tokens = sample(np.tile(logits, (64, 1)), [Row(seed=s, choice=c) for s in range(8) for c in range(8)]).tokens
    assert len(set(tokens.tolist())) > 56


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_a_row_is_the_same_in_any_batch(data: st.DataObject) -> None:
    count, vocab = data.draw(st.integers(2, 12)), 500
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    logits = rng.standard_normal((count, vocab)).astype(np.float32) * 3
    rows = [
        Row(
            temperature=float(rng.choice([0.0, 0.5, 1.0, 3.0])),
            top_k=int(rng.choice([0, 5, 100])),
            top_p=float(rng.choice([1.0, 0.9])),
            seed=int(rng.integers(2**63)),
            position=int(rng.integers(2**31)),
            logprobs=int(rng.choice([-1, 0, 5])),
            allowed=None if rng.random() < 0.5 else frozenset(rng.choice(vocab, 50).tolist()),
            bias={int(rng.integers(vocab)): 2.0} if rng.random() < 0.5 else {},
            history={int(t): 1 for t in rng.choice(vocab, 10)},
            repetition_penalty=float(rng.choice([1.0, 1.3])),
        )
        for _ in range(count)
    ]
    order = rng.permutation(count)
    together = sample(logits, rows)
    shuffled = sample(logits[order], [rows[i] for i in order])
    for place, index in enumerate(order):
        alone = sample(logits[index : index + 1], [rows[index]])
        assert together.tokens[index] == shuffled.tokens[place] == alone.tokens[0]
        assert together.logprobs[index] == shuffled.logprobs[place] == alone.logprobs[0]
        assert (together.top_logprobs[index] == shuffled.top_logprobs[place]).all()


def test_golden_tokens() -> None:
    """Frozen results: they must be the same on every machine and in every version, or resumed requests would change."""
    logits = (np.arange(1000) * 7919 % 1009).astype(np.float32) / 100
    row = Row(seed=0x123456789ABCDEF0, choice=3, temperature=1.5, top_p=0.98, top_k=400, min_p=0.001)
    tokens = [sample_one(logits, replace(row, position=position)) for position in range(12)]
    assert tokens == [264, 851, 938, 429, 67, 601, 607, 73, 226, 970, 476, 528]
