"""Keys and values as 8-bit integers: near the f16 ones, and the same bits however the work is cut."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from millstream.engine.sizing import kv_bytes_per_token
from millstream.models.spec import ModelSpec
from millstream.native import _core
from native.levels import in_level
from native.reference import logits as reference_logits
from native.test_model import MODELS, assert_same_bits_however_cut, prompt, table
from native.tiny import BLOCK, Chunk, Tensor, build, layer, rope, run_chunked, spec, step, tensors

WIDE = {"head_dim": 80, "attention_scale": 0.1, "rope": rope("half", 80)}  # two groups of 32 and a half
SOME = {name: MODELS[name] for name in ("llama", "gemma3", "softcaps", "odd sizes", "one kv head")} | {
    "wide": (spec([layer(**WIDE), layer(**WIDE, window=40)]), [T.Q8_0])
}
NAMES = pytest.mark.parametrize("name", list(SOME))


def int8(s: ModelSpec, weights: list[Tensor], *, threads: int = 1) -> _core.Model:
    return build(s, weights, threads=threads, kv_type="int8")


@NAMES
def test_logits_are_near_the_reference(name: str) -> None:
    s, kinds = SOME[name]
    weights, tokens = tensors(s, kinds), prompt(s.vocab_size, 90)
    found = step(int8(s, weights), s.vocab_size, [Chunk(tokens, 0, table(0, 90))])[0]
    expected = reference_logits(s, weights, tokens)
    error = np.abs(found - expected).max() / expected.std()
    assert 1e-5 < error < 5e-2  # a step of 1 / 254 of the largest of 32


@NAMES
def test_same_bits_alone_chunked_batched_and_threaded(name: str) -> None:
    s, kinds = SOME[name]
    weights = tensors(s, kinds)
    assert_same_bits_however_cut(int8(s, weights), int8(s, weights, threads=2), s.vocab_size)


@NAMES
def test_same_bits_at_the_generic_level(name: str) -> None:
    np.testing.assert_array_equal(in_level("generic", f"native.test_int8_kv:level_logits:{name}"), level_logits(name))


def level_logits(name: str) -> np.ndarray:
    s, kinds = SOME[name]
    n, first = 290, 230  # more than a part of attention
    model, tokens = int8(s, tensors(s, kinds)), prompt(s.vocab_size, n)
    start = step(model, s.vocab_size, [Chunk(tokens[:first], 0, table(0, n))])[0]
    return np.concatenate([start, step(model, s.vocab_size, [Chunk(tokens[first:], first, table(0, n))])[0]])


def test_long_contexts_split_over_threads_have_the_same_bits() -> None:
    s, kinds = SOME["gemma3"]
    weights, n = tensors(s, kinds), 600
    tokens = prompt(s.vocab_size, n)
    last = []
    for threads, chunk, rest in ((1, 256, 1), (2, 100, 1), (3, 64, 40)):
        model = int8(s, weights, threads=threads)
        for i in range(0, n, chunk):
            step(model, s.vocab_size, [Chunk(tokens[i : i + chunk], i, table(0, n))])
        last.append(step(model, s.vocab_size, [Chunk(tokens[-rest:], n - rest, table(0, n))])[0][-1])
    np.testing.assert_array_equal(last[1], last[0])
    np.testing.assert_array_equal(last[2], last[0])


def test_pages_of_other_sequences_never_matter() -> None:
    s = spec([layer(), layer(window=40)])
    weights = tensors(s, [T.F32])
    poison = s.vocab_size - 1
    next(t for t in weights if t.slot == "embedding").data.view(np.float32)[poison] = np.nan
    model, tokens = int8(s, weights), prompt(poison, 45)
    clean = step(model, s.vocab_size, [Chunk(tokens, 0, [0, 1])])[0]
    assert np.isfinite(clean).all()
    assert np.isnan(step(model, s.vocab_size, [Chunk([poison] * 64, 0, [2, 3])])[0]).all()
    np.testing.assert_array_equal(run_chunked(model, s.vocab_size, tokens, [2, 3], 11), clean)


@pytest.mark.parametrize("head_dim", [8, 32, 48, 64])
@pytest.mark.parametrize("kv_type", ["f16", "int8"])
def test_the_memory_that_is_planned_is_taken(head_dim: int, kv_type: str) -> None:
    s = spec([layer(head_dim=head_dim, rope=rope("half", 8))] * 3)
    model = _core.Model(s, kv_blocks=5, max_tokens=8, max_rows=2, threads=1, kv_type=kv_type)  # type: ignore[arg-type]
    assert model.kv_bytes == 5 * BLOCK * kv_bytes_per_token(s, kv_type)  # type: ignore[arg-type]


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="f16 or int8"):
        _core.Model(spec([layer()]), kv_blocks=2, max_tokens=8, max_rows=2, kv_type="q4")  # type: ignore[arg-type]
