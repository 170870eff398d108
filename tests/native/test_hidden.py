"""Hidden states of a step: what the output head reads, with the same bits however the work is cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from millstream.native import _core
from native.levels import assert_bits_of_generic
from native.test_model import MODELS, prompt, table
from native.tiny import Chunk, build, greedy, outputs, step, tensors

NAMES = pytest.mark.parametrize("name", ["llama", "floats", "gemma3", "odd sizes"])


def hidden_states(
    model: _core.Model, size: int, chunks: Sequence[Chunk], rows: Sequence[int] | None = None
) -> NDArray[np.float32]:
    """One step without samples; hidden states of ``rows`` (None: of all tokens)."""
    tokens = np.concatenate([np.asarray(c.tokens, np.int32) for c in chunks])
    starts = np.cumsum([0] + [len(c.tokens) for c in chunks]).astype(np.int32)
    positions = np.asarray([c.position for c in chunks], np.int32)
    tables = np.full((len(chunks), max(len(c.table) for c in chunks)), -1, np.int32)
    for index, chunk in enumerate(chunks):
        tables[index, : len(chunk.table)] = chunk.table
    wanted = np.asarray(range(len(tokens)) if rows is None else rows, np.int32)
    hidden = np.full((len(wanted), size), np.nan, np.float32)
    _, out = outputs(0)
    none = np.empty(0, np.int32)
    model.step(tokens, starts, positions, tables, none, greedy(0), out, hidden_rows=wanted, hidden=hidden)
    return hidden


@NAMES
def test_same_bits_alone_chunked_batched_and_threaded(name: str) -> None:
    s, kinds = MODELS[name]
    weights = tensors(s, kinds)
    tokens = prompt(s.vocab_size, 75)
    alone = hidden_states(build(s, weights), s.hidden, [Chunk(tokens, 0, table(0, 75))])
    assert np.isfinite(alone).all()
    model = build(s, weights, threads=2)
    for size in (1, 7, 33):
        parts = [
            hidden_states(model, s.hidden, [Chunk(tokens[i : i + size], i, [9, 4, 30])]) for i in range(0, 75, size)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), alone)
    batch = [Chunk(prompt(s.vocab_size, 40, seed=2), 0, [20, 21]), Chunk(tokens, 0, [3, 2, 1])]
    np.testing.assert_array_equal(hidden_states(model, s.hidden, batch, [114, 40, 77]), alone[[74, 0, 37]])


@NAMES
def test_same_bits_at_every_isa_level(name: str) -> None:
    assert_bits_of_generic(f"native.test_hidden:level_hidden:{name}", level_hidden(name))


def level_hidden(name: str) -> NDArray[np.float32]:
    """What `test_same_bits_at_every_isa_level` computes at another level."""
    s, kinds = MODELS[name]
    return hidden_states(build(s, tensors(s, kinds)), s.hidden, [Chunk(prompt(s.vocab_size, 70), 0, table(0, 70))])


@NAMES
def test_the_output_head_makes_the_logits_of_them(name: str) -> None:
    s, kinds = MODELS[name]
    weights = tensors(s, kinds)
    model = build(s, weights)
    chunk = Chunk(prompt(s.vocab_size, 50), 0, table(0, 50))
    head = next(t for t in weights if t.slot == ("embedding" if s.tied_output else "output"))
    hidden = hidden_states(model, s.hidden, [chunk])
    logits = _core.matmul(int(head.kind), head.rows, head.cols, head.data, hidden)
    np.testing.assert_array_equal(logits, step(model, s.vocab_size, [chunk])[0])


def test_sizes_are_checked() -> None:
    s, kinds = MODELS["llama"]
    model = build(s, tensors(s, kinds))
    chunk = Chunk([1, 2, 3], 0, [0])
    for rows in ([3], [-1], [0, 0, 1, 2]):
        with pytest.raises(ValueError, match="hidden"):
            hidden_states(model, s.hidden, [chunk], rows)
    with pytest.raises(ValueError, match="hidden size"):
        hidden_states(model, s.hidden + 1, [chunk])
