"""Activations as 8-bit integers: near the exact ones, and the same bits however the work is cut."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.models.spec import ModelSpec
from millstream.native import _core
from native.levels import assert_bits_of_generic
from native.reference import logits as reference_logits
from native.test_model import MODELS, assert_same_bits_however_cut, prompt, table
from native.tiny import Chunk, Tensor, build, layer, spec, step, tensors

SOME = {name: MODELS[name] for name in ("llama", "simple", "gemma3")}
NAMES = pytest.mark.parametrize("name", list(SOME))


def int8(s: ModelSpec, weights: list[Tensor], *, threads: int = 1) -> _core.Model:
    return build(s, weights, threads=threads, activations="int8")


@NAMES
def test_logits_are_near_the_reference(name: str) -> None:
    s, kinds = SOME[name]
    weights, tokens = tensors(s, kinds), prompt(s.vocab_size, 90)
    expected = reference_logits(s, weights, tokens)
    exact = step(build(s, weights), s.vocab_size, [Chunk(tokens, 0, table(0, 90))])[0]
    found = step(int8(s, weights), s.vocab_size, [Chunk(tokens, 0, table(0, 90))])[0]
    error, usual = np.abs(found - expected).max(), np.abs(exact - expected).max()
    assert 2 * usual < error < 0.25 * expected.std()


@NAMES
def test_same_bits_alone_chunked_batched_and_threaded(name: str) -> None:
    s, kinds = SOME[name]
    weights = tensors(s, kinds)
    assert_same_bits_however_cut(int8(s, weights), int8(s, weights, threads=2), s.vocab_size)


@NAMES
def test_same_bits_at_the_generic_level(name: str) -> None:
    assert_bits_of_generic(f"native.test_int8_activations:level_logits:{name}", level_logits(name))


def level_logits(name: str) -> np.ndarray:
    s, kinds = SOME[name]
    return step(int8(s, tensors(s, kinds)), s.vocab_size, [Chunk(prompt(s.vocab_size, 70), 0, table(0, 70))])[0]


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="int12 or int8"):
        _core.Model(spec([layer()]), kv_blocks=2, max_tokens=8, max_rows=2, activations="int4")  # type: ignore[arg-type]
