"""Deterministic random tensors in every GGUF type that the engine runs, as the bytes of the file.

The numbers come from the raw stream of a PCG64 generator, whose bits numpy guarantees for all versions (the bits of
`Generator.normal` it does not), so a seed means the same weights everywhere.
"""

from __future__ import annotations

import zlib

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

QK_K = 256
"""Values in a block of the K types."""


class Source:
    """Random numbers of one named tensor; tensors do not share a stream, so adding one changes no other."""

    def __init__(self, seed: int, name: str) -> None:
        self._bits = np.random.PCG64([seed, zlib.crc32(name.encode())])

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Multiples of 2^-23 in [-1, 1)."""
        raw = np.asarray(self._bits.random_raw(int(np.prod(shape))), dtype=np.uint64)
        return (((raw >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23)) - np.float32(1.0)).reshape(shape)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Integers in [low, high); the bias of the modulus is below 2^-40."""
        raw = np.asarray(self._bits.random_raw(int(np.prod(shape))), dtype=np.uint64)
        return (low + (raw >> np.uint64(1)).astype(np.int64) % (high - low)).reshape(shape)

    def bytes(self, shape: tuple[int, ...]) -> Bytes:
        return self.integers(0, 256, shape).astype(np.uint8)


def random_matrix(source: Source, qtype: GGMLQuantizationType, rows: int, cols: int, std: float) -> Bytes:
    """The bytes of a [rows, cols] tensor with values of mean about 0 and the given standard deviation.

    Types that the gguf package can quantise hold quantised uniform numbers; for the K types the blocks themselves are
    drawn. Shape [rows, bytes per row]. ValueError if ``cols`` is no multiple of the block.
    """
    block, _ = GGML_QUANT_SIZES[qtype]
    if cols % block:
        raise ValueError(f"{cols} columns are no multiple of the {qtype.name} block ({block})")
    if qtype in _K_BLOCKS:
        blocks = _K_BLOCKS[qtype](source, rows * cols // QK_K, std)
        return np.ascontiguousarray(blocks.reshape(rows, -1))
    values = source.uniform((rows, cols)) * np.float32(std * 3.0**0.5)
    return np.ascontiguousarray(gguf.quants.quantize(values, qtype)).view(np.uint8).reshape(rows, -1)


def _half(values: NDArray[np.float32]) -> Bytes:
    return np.ascontiguousarray(values.astype("<f2")).view(np.uint8).reshape(len(values), 2)


def _pack_scales(scales: NDArray[np.int64], mins: NDArray[np.int64]) -> Bytes:
    """Eight 6-bit scales and eight 6-bit minimums a block, [n, 8] each, in the 12 bytes of Q4_K and Q5_K."""
    low = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    middle = mins[:, :4] | (mins[:, 4:] >> 4 << 6)
    high = (scales[:, 4:] & 15) | ((mins[:, 4:] & 15) << 4)
    return np.concatenate([low, middle, high], axis=1).astype(np.uint8)


def _scales_and_minimums(source: Source, n: int, std: float, levels: int) -> list[Bytes]:
    """d, dmin and packed scales such that ``d·scale·q − dmin·min`` is centred for q uniform in 0..levels − 1."""
    middle = (levels - 1) / 2
    d = np.float32(std / (40 * levels / 12**0.5)) * (1 + np.float32(0.5) * source.uniform((n,)))
    scales = source.integers(16, 64, (n, 8))
    mins = np.clip(scales + source.integers(-2, 3, (n, 8)), 0, 63)
    return [_half(d), _half(d * np.float32(middle)), _pack_scales(scales, mins)]


def _q4_k(source: Source, n: int, std: float) -> Bytes:
    head = _scales_and_minimums(source, n, std, 16)
    return np.concatenate([*head, source.bytes((n, QK_K // 2))], axis=1)


def _q5_k(source: Source, n: int, std: float) -> Bytes:
    head = _scales_and_minimums(source, n, std, 32)
    return np.concatenate([*head, source.bytes((n, QK_K // 8)), source.bytes((n, QK_K // 2))], axis=1)


def _q6_k(source: Source, n: int, std: float) -> Bytes:
    """Scales of both signs; d is a subnormal f16 for the usual ``std``, as it often is in published files."""
    quants = source.bytes((n, QK_K // 2 + QK_K // 4))
    scales = source.integers(24, 128, (n, QK_K // 16)) * (1 - 2 * source.integers(0, 2, (n, QK_K // 16)))
    d = np.float32(std / (80 * 64 / 12**0.5)) * (1 + np.float32(0.5) * source.uniform((n,)))
    return np.concatenate([quants, scales.astype(np.int8).view(np.uint8), _half(d)], axis=1)


_K_BLOCKS = {
    GGMLQuantizationType.Q4_K: _q4_k,
    GGMLQuantizationType.Q5_K: _q5_k,
    GGMLQuantizationType.Q6_K: _q6_k,
}
