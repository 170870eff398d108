"""Every block type against the reference dequantiser, and products against it."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T
from gguf import quants

from millstream.engine.config import Activations
from millstream.native import _core
from native.tiny import quantized_bytes, random_k_blocks

KINDS = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K]
QUANTISED = [kind for kind in KINDS if kind not in (T.F32, T.F16, T.BF16)]
K_KINDS = [T.Q4_K, T.Q5_K, T.Q6_K]
LARGEST: dict[Activations, int] = {"int12": 2047, "int8": 127}
"""Largest integers of activations."""

BLOCK_BYTES = {T.Q4_0: 18, T.Q4_1: 20, T.Q5_0: 22, T.Q5_1: 24, T.Q8_0: 34}


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 37])
@pytest.mark.parametrize("blocks", [1, 2, 3, 9])
def test_dequantize_equals_the_reference_exactly(kind: T, rows: int, blocks: int) -> None:
    """Tiles that are not full, and any number of blocks."""
    cols = blocks * (256 if kind in K_KINDS else 32)
    data = quantized_bytes(np.random.default_rng(rows), kind, rows, cols)
    expected = quants.dequantize(data, kind).reshape(rows, cols)
    np.testing.assert_array_equal(_core.dequantize(int(kind), rows, cols, data), expected)


@pytest.mark.parametrize("kind", [T.F32, T.F16, T.BF16], ids=lambda k: k.name)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (3, 7), (16, 33), (35, 129)])
def test_dequantize_floats_of_any_size(kind: T, rows: int, cols: int) -> None:
    values = np.random.default_rng(cols).standard_normal((rows, cols)).astype(np.float32)
    data = quants.quantize(values, kind)
    expected = quants.dequantize(data, kind).reshape(rows, cols)
    np.testing.assert_array_equal(_core.dequantize(int(kind), rows, cols, data.view(np.uint8)), expected)


@pytest.mark.parametrize("kind", [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0], ids=lambda k: k.name)
def test_dequantize_every_scale(kind: T) -> None:
    """Every finite f16 as a scale and as a minimum, subnormal ones too; -8 times a scale (Q4_0) may be no f16."""
    halves = np.arange(65536, dtype=np.uint16)
    halves = halves[np.isfinite(halves.view(np.float16))].reshape(-1, 62)
    blocks = np.random.default_rng(1).integers(0, 256, (*halves.shape, BLOCK_BYTES[kind]), dtype=np.uint8)
    blocks[..., :2] = halves[..., None].view(np.uint8)
    if kind in (T.Q4_1, T.Q5_1):
        blocks[..., 2:4] = halves[::-1, :, None].copy().view(np.uint8)
    data = blocks.reshape(len(halves), -1)
    expected = quants.dequantize(data, kind)
    np.testing.assert_array_equal(_core.dequantize(int(kind), *expected.shape, data), expected)


@pytest.mark.parametrize("kind", K_KINDS, ids=lambda k: k.name)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 6e4])
def test_dequantize_random_bit_patterns_of_k_quants(kind: T, scale: float) -> None:
    data = random_k_blocks(np.random.default_rng(7), kind, 33, 768, scale)
    expected = quants.dequantize(data, kind).reshape(33, 768)
    np.testing.assert_array_equal(_core.dequantize(int(kind), 33, 768, data), expected)


@pytest.mark.parametrize("kind", list(BLOCK_BYTES), ids=lambda k: k.name)
def test_dequantize_random_bit_patterns_of_simple_quants(kind: T) -> None:
    rng = np.random.default_rng(3)
    blocks = rng.integers(0, 256, (20, 4, BLOCK_BYTES[kind]), dtype=np.uint8)
    for at in (0, 2) if kind in (T.Q4_1, T.Q5_1) else (0,):
        blocks[:, :, at : at + 2] = rng.uniform(-6e4, 6e4, (20, 4, 1)).astype(np.float16).view(np.uint8)
    data = blocks.reshape(20, -1)
    np.testing.assert_array_equal(_core.dequantize(int(kind), 20, 128, data), quants.dequantize(data, kind))


def test_dequantize_every_half() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    found = _core.dequantize(int(T.F16), 16, 4096, bits)
    np.testing.assert_array_equal(found.ravel(), bits.view(np.float16).astype(np.float32))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
@pytest.mark.parametrize("m", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("activations", LARGEST)
def test_matmul_is_near_the_float64_product(kind: T, m: int, activations: Activations) -> None:
    rng = np.random.default_rng(m)
    data = quantized_bytes(rng, kind, 50, 256)
    x = rng.standard_normal((m, 256)).astype(np.float32)
    w = quants.dequantize(data, kind).reshape(50, 256).astype(np.float64)
    # Activations are off by at most half a step of their group each; float32 rounding is far below.
    half_steps = np.abs(x).reshape(m, 8, 32).max(2) / LARGEST[activations] / 2
    bound = half_steps @ np.abs(w).reshape(50, 8, 32).sum(2).T * 1.01 + 1e-4
    assert (np.abs(_core.matmul(int(kind), 50, 256, data, x, activations) - x @ w.T) <= bound).all()


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda k: k.name)
@pytest.mark.parametrize("activations", LARGEST)
@pytest.mark.parametrize("m", [1, 8, 20])
def test_activations_that_are_integers_are_multiplied_exactly(kind: T, m: int, activations: Activations) -> None:
    """Rows of integers up to the largest one, in every group, lose nothing to quantisation."""
    rng = np.random.default_rng(m)
    data = quantized_bytes(rng, kind, 33, 512)
    x = rng.integers(-LARGEST[activations], LARGEST[activations] + 1, (m, 512))
    x[:, ::32] = LARGEST[activations] * rng.choice([-1, 1], (m, 16))
    w = quants.dequantize(data, kind).reshape(33, 512).astype(np.float64)
    found = _core.matmul(int(kind), 33, 512, data, x.astype(np.float32), activations)
    np.testing.assert_allclose(found, x @ w.T, atol=1e-5 * (np.abs(x) @ np.abs(w).T).max())


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
@pytest.mark.parametrize("activations", LARGEST)
def test_a_row_of_a_product_depends_on_nothing_but_the_row(kind: T, activations: Activations) -> None:
    rng = np.random.default_rng(5)
    data = quantized_bytes(rng, kind, 35, 512)
    x = (rng.standard_normal((11, 512)) * 10.0 ** rng.integers(-6, 6, (11, 1))).astype(np.float32)
    together = _core.matmul(int(kind), 35, 512, data, x, activations)
    for i in range(len(x)):
        alone = _core.matmul(int(kind), 35, 512, data, x[i : i + 1], activations)
        np.testing.assert_array_equal(alone, together[i : i + 1])


@pytest.mark.parametrize("activations", LARGEST)
@pytest.mark.parametrize("m", [1, 4, 9])
def test_extreme_integers_do_not_overflow(activations: Activations, m: int) -> None:
    """Largest nibbles with largest activations: the 16-bit sums of byte products are at their limit."""
    nibbles = np.zeros((16, 2, 18), np.uint8)
    nibbles[..., 2:] = 0xFF
    nibbles[..., :2] = np.full((16, 2, 1), 1.0, np.float16).view(np.uint8)
    for sign in (1.0, -1.0):
        x = np.full((m, 64), sign, np.float32)
        found = _core.matmul(int(T.Q4_0), 16, 64, nibbles.reshape(16, -1), x, activations)
        np.testing.assert_allclose(found, sign * 64 * 7, rtol=1e-5)


@pytest.mark.parametrize("activations", LARGEST)
def test_zero_and_not_finite_activations(activations: Activations) -> None:
    data = quantized_bytes(np.random.default_rng(1), T.Q8_0, 16, 64)
    x = np.zeros((4, 64), np.float32)
    x[1, 3], x[2, 5], x[3, :] = np.nan, np.inf, 1e-38
    found = _core.matmul(int(T.Q8_0), 16, 64, data, x, activations)
    assert (found[0] == 0).all()
    assert np.isnan(found[1:3]).all()
    assert np.isfinite(found[3]).all()


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_bad_activation_anywhere_spoils_its_row_and_no_other(bad: float) -> None:
    data = quantized_bytes(np.random.default_rng(1), T.Q4_1, 16, 64)
    x = np.ones((64, 64), np.float32)
    x[::2] = np.random.default_rng(2).standard_normal((32, 64))
    expected = _core.matmul(int(T.Q4_1), 16, 64, data, x[1::2])
    x[np.arange(0, 64, 2), np.arange(0, 64, 2)] = bad
    found = _core.matmul(int(T.Q4_1), 16, 64, data, x)
    assert np.isnan(found[::2]).all()
    np.testing.assert_array_equal(found[1::2], expected)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
@pytest.mark.parametrize("cols", [256, 768, 2304])
@pytest.mark.parametrize("activations", LARGEST)
def test_any_number_of_rows_gives_the_same_bits(kind: T, cols: int, activations: Activations) -> None:
    """Levels choose other kernels for few and for many rows, and cut wide matrices into pieces."""
    rng = np.random.default_rng(cols)
    data = quantized_bytes(rng, kind, 40, cols)
    x = rng.standard_normal((70, cols)).astype(np.float32)
    rows_alone = [_core.matmul(int(kind), 40, cols, data, x[i : i + 1], activations) for i in range(len(x))]
    expected = np.concatenate(rows_alone)
    for rows in (*range(2, 20), 31, 64, 70):
        np.testing.assert_array_equal(_core.matmul(int(kind), 40, cols, data, x[:rows], activations), expected[:rows])


@pytest.mark.parametrize(
    ("kind", "rows", "cols", "size"),
    [
        (99, 1, 32, 34),
        (-1, 1, 32, 34),
        (int(T.Q8_0), 1, 33, 34),
        (int(T.Q4_K), 1, 128, 72),
        (int(T.Q8_0), 1, 32, 33),
        (int(T.Q8_0), 1, 32, 35),
        (int(T.Q8_0), 0, 32, 0),
        (int(T.Q8_0), -1, 32, 34),
        (int(T.F32), 2**40, 2**40, 4),
        (int(T.F32), 2**28, 2**28, 4),
        (int(T.F32), 1, 2**62, 4),
    ],
)
def test_hostile_sizes_are_value_errors(kind: int, rows: int, cols: int, size: int) -> None:
    with pytest.raises(ValueError, match="tensor"):
        _core.dequantize(kind, rows, cols, bytes(size))
