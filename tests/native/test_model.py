"""Tiny random models of every feature: near the float64 reference, and the same bits however the work is cut."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from millstream.models.spec import ModelSpec
from millstream.native import _core
from native.levels import assert_bits_of_generic
from native.reference import logits as reference_logits
from native.tiny import Chunk, build, layer, rope, run_chunked, spec, step, tensors

WIDE = {"head_dim": 64, "intermediate": 512, "attention_scale": 0.125}
MODELS: dict[str, tuple[ModelSpec, list[T]]] = {
    "llama": (spec([layer(), layer()], tied_output=True), [T.Q4_1, T.Q8_0]),
    "floats": (spec([layer(), layer()], hidden=56), [T.F32, T.F16, T.BF16]),
    "simple": (spec([layer(), layer()]), [T.Q4_0, T.Q5_0, T.Q5_1]),
    "k-quants": (
        spec([layer(**WIDE, rope=rope("half", 64))], hidden=256),
        [T.Q4_K, T.Q5_K, T.Q6_K],
    ),
    "qwen2": (spec([layer(qkv_bias=True, rope=rope("half", 16, 1e6)), layer(qkv_bias=True)]), [T.Q5_0]),
    "gemma3": (
        spec(
            [
                layer(qk_norm=True, post_norms=True, activation="gelu_tanh", window=w, rope=rope("half", 16, base))
                for w, base in ((24, 1e4), (0, 1e6), (300, 1e4))
            ],
            embedding_scale=8.0,
            tied_output=True,
        ),
        [T.Q8_0, T.Q5_0],
    ),
    "softcaps": (spec([layer(softcap=2.0), layer(softcap=2.0, window=40)], final_softcap=3.0), [T.Q8_0]),
    "odd sizes": (
        spec([layer(heads=3, kv_heads=1, head_dim=10, intermediate=50, rope=rope("half", 6, scale=1.1))], hidden=34),
        [T.F32],
    ),
    "one kv head": (spec([layer(heads=8, kv_heads=1, head_dim=8, rope=rope("interleaved", 8))]), [T.Q8_0]),
}
MODEL = pytest.mark.parametrize("name", list(MODELS))


def prompt(vocab: int, n: int, seed: int = 1) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, vocab, n)]


def table(first: int, n: int) -> list[int]:
    return list(range(first, first + -(-n // 32)))


def assert_same_bits_however_cut(model: _core.Model, threaded: _core.Model, vocab: int) -> None:
    """A prompt alone, in chunks and in a batch, on one model with one thread and with several."""
    n = 75
    tokens, other = prompt(vocab, n), prompt(vocab, 40, seed=2)
    alone = step(model, vocab, [Chunk(tokens, 0, table(0, n))])[0]
    for chunk in (1, 2, 7, 16, 64):
        np.testing.assert_array_equal(run_chunked(model, vocab, tokens, [9, 4, 30], chunk), alone)
    np.testing.assert_array_equal(run_chunked(threaded, vocab, tokens, [5, 2, 8], 33), alone)
    # In a batch: a decode step of another sequence, this prompt's second half, and a third prompt.
    for m in (model, threaded):
        step(m, vocab, [Chunk(other, 0, [20, 21]), Chunk(tokens[:31], 0, [3, 2, 1])])
        mixed = [Chunk([7], 40, [20, 21]), Chunk(tokens[31:], 31, [3, 2, 1]), Chunk(other, 0, [40, 41])]
        np.testing.assert_array_equal(step(m, vocab, mixed)[1], alone[31:])


@MODEL
def test_logits_are_near_the_reference(name: str) -> None:
    s, kinds = MODELS[name]
    weights = tensors(s, kinds)
    tokens = prompt(s.vocab_size, 90)
    found = step(build(s, weights), s.vocab_size, [Chunk(tokens, 0, table(0, 90))])[0]
    expected = reference_logits(s, weights, tokens)
    # Activations of 12 bits (a step is 1 / 2047 of the largest of 32) are the largest error, then KV in f16.
    assert np.abs(found - expected).max() < 2e-2 * expected.std()


@MODEL
def test_same_bits_alone_chunked_batched_and_threaded(name: str) -> None:
    s, kinds = MODELS[name]
    weights = tensors(s, kinds)
    assert_same_bits_however_cut(build(s, weights), build(s, weights, threads=2), s.vocab_size)


@MODEL
def test_same_bits_at_every_isa_level(name: str) -> None:
    assert_bits_of_generic(f"native.test_model:level_logits:{name}", level_logits(name))


def level_logits(name: str) -> np.ndarray:
    """What `test_same_bits_at_every_isa_level` computes at another level."""
    s, kinds = MODELS[name]
    n, first = 290, 230  # more than a part of attention
    model, tokens = build(s, tensors(s, kinds)), prompt(s.vocab_size, n)
    start = step(model, s.vocab_size, [Chunk(tokens[:first], 0, table(0, n))])[0]
    return np.concatenate([start, step(model, s.vocab_size, [Chunk(tokens[first:], first, table(0, n))])[0]])


@pytest.mark.parametrize("name", ["llama", "gemma3", "softcaps"])
def test_long_contexts_split_over_threads_have_the_same_bits(name: str) -> None:
    """Several parts of 256 positions, windows shorter and longer than a part, decode and chunks."""
    s, kinds = MODELS[name]
    weights = tensors(s, kinds)
    n = 700
    tokens = prompt(s.vocab_size, n)
    models = [build(s, weights, threads=t) for t in (1, 2, 3)]
    for model, chunk in zip(models, (256, 100, 64), strict=True):
        for i in range(0, n, chunk):
            step(model, s.vocab_size, [Chunk(tokens[i : i + chunk], i, table(0, n))])
    last = [
        step(m, s.vocab_size, [Chunk(tokens[-k:], n - k, table(0, n))])[0][-1]
        for m, k in zip(models, (1, 1, 40), strict=True)
    ]
    np.testing.assert_array_equal(last[1], last[0])
    np.testing.assert_array_equal(last[2], last[0])
    expected = reference_logits(s, weights, tokens)[-1]
    assert np.abs(last[0] - expected).max() < 2e-2 * expected.std()


def test_pages_of_other_sequences_never_matter() -> None:
    """Pages full of NaN from another sequence, reused: positions not yet written are never read."""
    s = spec([layer(), layer(window=40)])
    weights = tensors(s, [T.F32])
    poison = s.vocab_size - 1
    embedding = next(t for t in weights if t.slot == "embedding")
    embedding.data.view(np.float32)[poison] = np.nan
    model = build(s, weights)
    tokens = prompt(poison, 45)
    clean = step(model, s.vocab_size, [Chunk(tokens, 0, [0, 1])])[0]
    assert np.isfinite(clean).all()
    poisoned = step(model, s.vocab_size, [Chunk([poison] * 64, 0, [2, 3])])[0]
    assert np.isnan(poisoned).all()
    np.testing.assert_array_equal(run_chunked(model, s.vocab_size, tokens, [2, 3], 11), clean)


def test_scales_that_need_more_than_16_bits() -> None:
    """Q4_0 has its zero at 8 steps: with scales that are nearly the largest f16, the minimum is none."""
    s = spec([layer(), layer()])
    weights = tensors(s, [T.Q4_0])
    for weight in weights:
        if weight.slot in ("embedding", "output"):  # elsewhere, values would be too large for K and V
            halves = weight.data.reshape(weight.rows, -1, 18)[..., :2].view(np.float16)
            halves[...] = halves.astype(float) * (6e4 / float(np.abs(halves).max()))
    tokens = prompt(s.vocab_size, 20)
    found = step(build(s, weights, threads=2), s.vocab_size, [Chunk(tokens, 0, table(0, 20))])[0]
    expected = reference_logits(s, weights, tokens)
    assert np.abs(found - expected).max() < 2e-2 * expected.std()


def test_other_threads_see_a_step_get_on_and_nothing_change_afterwards() -> None:
    s = spec([layer(), layer()])
    model = build(s, tensors(s, [T.Q4_1]))
    seen = {model.progress}
    enough = threading.Event()

    def work() -> None:
        while not enough.is_set():
            step(model, s.vocab_size, [Chunk([1] * 64, 0, [0, 1])])

    with ThreadPoolExecutor(1) as pool:
        steps = pool.submit(work)
        end = time.monotonic() + 60
        while len(seen) < 3 and time.monotonic() < end:
            seen.add(model.progress)
        enough.set()
        steps.result()
    assert len(seen) >= 3
    at_rest = model.progress
    time.sleep(0.05)
    assert model.progress == at_rest
