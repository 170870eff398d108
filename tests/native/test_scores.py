"""Rows whose next token is known: the numbers that a sampled row reports, however the work is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from millstream.native import _core
from native.levels import assert_bits_of_generic
from native.sampling_case import Row, arrays, output
from native.test_model import MODELS, prompt, table
from native.tiny import Chunk, build, greedy, outputs, tensors

NAMES = pytest.mark.parametrize("name", ["llama", "floats", "softcaps", "odd sizes"])
TOP = 3


class Scores(NamedTuple):
    logprobs: NDArray[np.float32]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]


def score(
    model: _core.Model,
    chunks: Sequence[Chunk],
    rows: Sequence[int],
    targets: Sequence[int],
    *,
    top: int = TOP,
    sampled: Sequence[int] = (),
) -> Scores:
    """One step that scores ``rows``, and samples greedily at ``sampled``."""
    tokens = np.concatenate([np.asarray(c.tokens, np.int32) for c in chunks])
    starts = np.cumsum([0] + [len(c.tokens) for c in chunks]).astype(np.int32)
    tables = np.full((len(chunks), max(len(c.table) for c in chunks)), -1, np.int32)
    for index, chunk in enumerate(chunks):
        tables[index, : len(chunk.table)] = chunk.table
    n = len(rows)
    found = Scores(np.full(n, 7, np.float32), np.full((n, top), -7, np.int32), np.full((n, top), 7, np.float32))
    scores = _core.TokenScores(rows=np.array(rows, np.int32), targets=np.array(targets, np.int32), **found._asdict())
    positions = np.asarray([c.position for c in chunks], np.int32)
    _, out = outputs(len(sampled))
    sample_rows = np.array(sampled, np.int32)
    model.step(tokens, starts, positions, tables, sample_rows, greedy(len(sampled)), out, scores=scores)
    return found


def equal(found: Scores, wanted: Scores) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def all_of(model: _core.Model, tokens: Sequence[int], pages: Sequence[int]) -> Scores:
    """Every token but the first, read at once."""
    return score(model, [Chunk(tokens, 0, pages)], range(len(tokens) - 1), tokens[1:])


@NAMES
def test_what_a_sampled_row_reports_of_the_same_token(name: str) -> None:
    s, kinds = MODELS[name]
    model = build(s, tensors(s, kinds))
    tokens = prompt(s.vocab_size, 50)
    scores = all_of(model, tokens, table(0, 50))
    rows = [
        Row(temperature=0.0, logprobs=TOP, bias={token: -np.inf for token in range(s.vocab_size) if token != target})
        for target in tokens[1:]
    ]
    result, out = output(49, TOP)
    model.step(
        np.array(tokens, np.int32), np.array([0, 50], np.int32), np.zeros(1, np.int32), np.array([[0, 1]], np.int32),
        np.arange(49, dtype=np.int32), _core.SamplingBatch(**arrays(rows, s.vocab_size)), out,
    )  # fmt: skip
    assert result.tokens.tolist() == tokens[1:]
    equal(scores, Scores(result.logprobs, result.top_ids, result.top_logprobs))
    assert (scores.logprobs < 0).all()


@NAMES
def test_same_bits_alone_chunked_batched_and_threaded(name: str) -> None:
    """200 rows are more than the model has room for at a time."""
    s, kinds = MODELS[name]
    weights = tensors(s, kinds)
    tokens = prompt(s.vocab_size, 201)
    alone = all_of(build(s, weights), tokens, table(0, 201))
    model = build(s, weights, threads=2)
    equal(all_of(model, tokens, table(20, 201)), alone)
    for size in (1, 33, 130):
        parts = []
        for first in range(0, 200, size):
            chunk = Chunk(tokens[first : min(first + size, 200)], first, table(0, 201))
            parts.append(
                score(model, [chunk], range(len(chunk.tokens)), tokens[first + 1 : first + 1 + len(chunk.tokens)])
            )
        equal(Scores(*(np.concatenate(part) for part in zip(*parts, strict=True))), alone)
    other = Chunk(prompt(s.vocab_size, 40, seed=2), 0, [40, 41])
    batch = [other, Chunk(tokens, 0, table(50, 201))]
    found = score(model, batch, [45, 239, 40], [tokens[6], tokens[200], tokens[1]], sampled=[39, 240])
    equal(found, Scores(*(column[[5, 199, 0]] for column in alone)))


@NAMES
def test_same_bits_at_every_isa_level(name: str) -> None:
    assert_bits_of_generic(f"native.test_scores:level_scores:{name}", level_scores(name))


def level_scores(name: str) -> NDArray[np.float64]:
    """What `test_same_bits_at_every_isa_level` computes at another level."""
    s, kinds = MODELS[name]
    tokens = prompt(s.vocab_size, 70)
    return np.column_stack(all_of(build(s, tensors(s, kinds)), tokens, table(0, 70))).astype(np.float64)


def test_without_alternatives_and_with_more_than_the_vocabulary() -> None:
    s, kinds = MODELS["llama"]
    model = build(s, tensors(s, kinds))
    chunk = Chunk([1, 2, 3], 0, [0])
    none = score(model, [chunk], [0, 1], [2, 3], top=0)
    many = score(model, [chunk], [0, 1], [2, 3], top=s.vocab_size + 2)
    np.testing.assert_array_equal(none.logprobs, many.logprobs)
    assert sorted(many.top_ids[0, :-2]) == list(range(s.vocab_size))
    assert (many.top_ids[:, -2:] == -1).all()
    assert np.isneginf(many.top_logprobs[:, -2:]).all()
    np.testing.assert_allclose(np.exp(many.top_logprobs[:, :-2].astype(np.float64)).sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "targets", "told"),
    [
        ([3], [0], "scored row 3"),
        ([-1], [0], "scored row -1"),
        ([0], [131], "target 131"),
        ([0], [-1], "target -1"),
        ([0, 1, 2, 0], [0, 0, 0, 0], "more entries"),
    ],
)
def test_what_does_not_fit_is_refused(rows: list[int], targets: list[int], told: str) -> None:
    s, kinds = MODELS["llama"]
    model = build(s, tensors(s, kinds))
    with pytest.raises(ValueError, match=told):
        score(model, [Chunk([1, 2, 3], 0, [0])], rows, targets)


def test_arrays_must_fit_together() -> None:
    i32, f32 = np.zeros(2, np.int32), np.zeros(2, np.float32)
    tops = {"top_ids": np.zeros((2, 1), np.int32), "top_logprobs": np.zeros((2, 1), np.float32)}
    for changes, name in (
        ({"targets": np.zeros(3, np.int32)}, "targets"),
        ({"logprobs": np.zeros(1, np.float32)}, "logprobs"),
        ({"top_ids": np.zeros((1, 1), np.int32)}, "top_ids"),
        ({"top_logprobs": np.zeros((2, 4), np.float32)}, "top_logprobs"),
        ({"rows": np.zeros(2, np.int64)}, "rows"),
    ):
        with pytest.raises(ValueError, match=name):
            _core.TokenScores(**{"rows": i32, "targets": i32, "logprobs": f32, **tops, **changes})
