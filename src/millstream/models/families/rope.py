"""Rotary frequencies with the scaling rules that GGUF metadata can name.

Sources: linear scaling https://arxiv.org/abs/2306.15595, YaRN https://arxiv.org/abs/2309.00071 (formulas as in
Transformers' ``modeling_rope_utils`` and ggml's ``rope_yarn``), Llama 3.1's factors as GGUF converters store them.
"""

from __future__ import annotations

import math
import struct
from typing import Literal

from millstream.models.families.hyper import Hyper
from millstream.models.ggml import F32
from millstream.models.spec import RopeSpec


def build_rope(
    hyper: Hyper, *, style: Literal["half", "interleaved"], dim: int, base: float, scaled: bool = True
) -> RopeSpec:
    """Rotation of ``dim`` dimensions. ``scaled``: apply the scaling that the file's metadata names.

    Raises:
        ModelFileError: the scaling is of another kind than none, linear and yarn.
    """
    if base <= 1.0:
        hyper.file.fail(f"has the rotary base {base:g}; a number above one was expected")
    frequencies = tuple(base ** (-2.0 * i / dim) for i in range(dim // 2))
    if not scaled:
        return RopeSpec(style=style, inv_freq=frequencies)
    kind = hyper.text("rope.scaling.type", "linear" if hyper.has("rope.scale_linear") else "none")
    # llama.cpp: older files have the factor of linear scaling under a name of its own.
    factor = hyper.positive("rope.scaling.factor", hyper.positive("rope.scale_linear", 1.0))
    if kind not in ("none", "linear", "yarn"):
        hyper.file.fail(f"uses rotary scaling {kind!r}, which is not supported; supported: none, linear, yarn")
    if kind == "none" or factor == 1.0:
        return RopeSpec(style=style, inv_freq=frequencies)
    if kind == "linear":
        return RopeSpec(style=style, inv_freq=tuple(f / factor for f in frequencies))
    return _yarn(hyper, style, frequencies, base, factor)


def divided(rope: RopeSpec, factors: tuple[float, ...]) -> RopeSpec:
    """The rotation with each inverse frequency divided by its factor."""
    inv_freq = tuple(f / factor for f, factor in zip(rope.inv_freq, factors, strict=True))
    return RopeSpec(style=rope.style, inv_freq=inv_freq, scale=rope.scale)


def rope_factors(hyper: Hyper, dim: int) -> tuple[float, ...]:
    """Divisors of the dim/2 inverse frequencies in tensor ``rope_freqs.weight`` (Llama 3.1); ones without it."""
    tensor = hyper.file.tensors.get("rope_freqs.weight")
    if tensor is None:
        return (1.0,) * (dim // 2)
    if tensor.ggml_type != F32 or tensor.shape != (dim // 2,):
        hyper.file.fail(f"tensor rope_freqs.weight should hold {dim // 2} F32 values")
    factors: tuple[float, ...] = struct.unpack(f"<{dim // 2}f", hyper.file.data(tensor))
    if not all(0.0 < factor < 1e30 for factor in factors):
        hyper.file.fail("tensor rope_freqs.weight holds a value that is not above zero")
    return factors


def _yarn(
    hyper: Hyper, style: Literal["half", "interleaved"], frequencies: tuple[float, ...], base: float, factor: float
) -> RopeSpec:
    """Slow rotations are interpolated, fast ones kept, with a ramp between; cosine and sine are scaled up."""
    if hyper.number("rope.scaling.yarn_log_multiplier", 0.0) or hyper.number("rope.scaling.yarn_ext_factor", 1.0) != 1:
        hyper.file.fail("uses a variant of YaRN (log multiplier or extrapolation factor), which is not supported")
    dim = 2 * len(frequencies)
    context = hyper.positive("rope.scaling.original_context_length", hyper.context_length)

    def dimension(rotations: float) -> float:
        return dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(dimension(hyper.positive("rope.scaling.yarn_beta_fast", 32.0))), 0)
    high = min(math.ceil(dimension(hyper.positive("rope.scaling.yarn_beta_slow", 1.0))), dim - 1)
    ramp = [min(max((i - low) / max(high - low, 0.001), 0.0), 1.0) for i in range(dim // 2)]
    inv_freq = tuple(f / factor * r + f * (1.0 - r) for f, r in zip(frequencies, ramp, strict=True))
    attention = hyper.positive("rope.scaling.attn_factor", 1.0) * hyper.positive("rope.scaling.yarn_attn_factor", 1.0)
    return RopeSpec(style=style, inv_freq=inv_freq, scale=attention * (1.0 + 0.1 * math.log(factor)))
