"""The model in float64 numpy, written from the formulas: what the native core approximates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from millstream.models.spec import LayerSpec, ModelSpec, RopeSpec
from native.tiny import Tensor

Array = NDArray[np.float64]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x: Array, rope: RopeSpec) -> Array:
    """x [tokens, heads, dim], token t at position t."""
    angles = np.arange(len(x))[:, None, None] * np.asarray(rope.inv_freq)
    cos, sin = np.cos(angles) * rope.scale, np.sin(angles) * rope.scale
    half, out = len(rope.inv_freq), x.copy()
    even, odd = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if rope.style == "interleaved" else (
        slice(0, half), slice(half, 2 * half))  # fmt: skip
    out[..., even] = x[..., even] * cos - x[..., odd] * sin
    out[..., odd] = x[..., odd] * cos + x[..., even] * sin
    return out


def activation(x: Array, name: str) -> Array:
    if name == "silu":
        return x / (1 + np.exp(-x))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attention(q: Array, k: Array, v: Array, block: LayerSpec) -> Array:
    n = len(q)
    group = block.heads // block.kv_heads
    scores = np.einsum("ihd,jhd->hij", q, np.repeat(k, group, 1)) * block.attention_scale
    if block.softcap:
        scores = block.softcap * np.tanh(scores / block.softcap)
    i, j = np.arange(n)[:, None], np.arange(n)[None]
    hidden = (j > i) | ((block.window > 0) & (i - j >= block.window))
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", weights, np.repeat(v, group, 1)).reshape(n, -1)


def logits(s: ModelSpec, weights: Sequence[Tensor], tokens: Sequence[int]) -> Array:
    """[tokens, vocab]"""
    w = {(t.layer, t.slot): t.values().astype(np.float64) for t in weights}
    n = len(tokens)
    x = w[-1, "embedding"][list(tokens)] * s.embedding_scale
    for i, block in enumerate(s.layers):
        h = rms_norm(x, w[i, "attn_norm"][0], s.norm_eps)
        q, k, v = (h @ w[i, name].T + (w[i, name + "_bias"][0] if block.qkv_bias else 0) for name in "qkv")
        q, k, v = (y.reshape(n, -1, block.head_dim) for y in (q, k, v))
        if block.qk_norm:
            q, k = rms_norm(q, w[i, "q_norm"][0], s.norm_eps), rms_norm(k, w[i, "k_norm"][0], s.norm_eps)
        out = attention(rotate(q, block.rope), rotate(k, block.rope), v, block) @ w[i, "o"].T
        x = x + (rms_norm(out, w[i, "attn_post_norm"][0], s.norm_eps) if block.post_norms else out)
        h = rms_norm(x, w[i, "mlp_norm"][0], s.norm_eps)
        out = (activation(h @ w[i, "gate"].T, block.activation) * (h @ w[i, "up"].T)) @ w[i, "down"].T
        x = x + (rms_norm(out, w[i, "mlp_post_norm"][0], s.norm_eps) if block.post_norms else out)
    y = rms_norm(x, w[-1, "output_norm"][0], s.norm_eps) @ w[-1, "embedding" if s.tied_output else "output"].T
    return s.final_softcap * np.tanh(y / s.final_softcap) if s.final_softcap else y
