"""Tiny random models for the native core, and a driver that runs sequences through `Model.step`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants
from numpy.typing import NDArray

from millstream.engine.config import Activations, KvType
from millstream.models.spec import LayerSpec, ModelSpec, RopeSpec
from millstream.native import _core

BLOCK = _core.BLOCK_SIZE


def rope(style: str, dims: int, base: float = 10000.0, scale: float = 1.0) -> RopeSpec:
    inv_freq = tuple(base ** (-2 * i / dims) for i in range(dims // 2))
    return RopeSpec(style=style, inv_freq=inv_freq, scale=scale)  # type: ignore[arg-type]


def quantized_bytes(rng: np.random.Generator, kind: T, rows: int, cols: int) -> NDArray[np.uint8]:
    """Random weights of a GGUF type, as bytes [rows, row bytes]; K-quants (no reference quantiser) from random bits."""
    if kind in (T.Q4_K, T.Q5_K, T.Q6_K):
        return random_k_blocks(rng, kind, rows, cols, scale=0.002)
    values = (rng.standard_normal((rows, cols)) * 0.08).astype(np.float32)
    return np.ascontiguousarray(quants.quantize(values, kind)).view(np.uint8).reshape(rows, -1)


def random_k_blocks(rng: np.random.Generator, kind: T, rows: int, cols: int, scale: float) -> NDArray[np.uint8]:
    """K-quant blocks of random bits with finite super-scales up to ``scale``."""
    size = {T.Q4_K: 144, T.Q5_K: 176, T.Q6_K: 210}[kind]
    blocks = rng.integers(0, 256, (rows, cols // 256, size), dtype=np.uint8)
    for at in (208,) if kind == T.Q6_K else (0, 2):
        d = (rng.uniform(-scale, scale, (rows, cols // 256, 1))).astype(np.float16)
        blocks[:, :, at : at + 2] = d.view(np.uint8)
    return blocks.reshape(rows, -1)


def layer(**changes: object) -> LayerSpec:
    fields: dict[str, object] = {
        "heads": 4, "kv_heads": 2, "head_dim": 16, "intermediate": 96, "attention_scale": 0.25,
        "rope": rope("interleaved", 16),
    }  # fmt: skip
    return LayerSpec(**(fields | changes))  # type: ignore[arg-type]


def spec(layers: Sequence[LayerSpec], **changes: object) -> ModelSpec:
    fields: dict[str, object] = {
        "family": "test", "vocab_size": 131, "hidden": 64, "context_length": 1024, "norm_eps": 1e-5,
        "layers": tuple(layers),
    }  # fmt: skip
    return ModelSpec(**(fields | changes))  # type: ignore[arg-type]


def slots(s: ModelSpec) -> list[tuple[int, str, int, int]]:
    """(layer, slot, rows, cols) of every tensor that the spec uses."""
    found = [(-1, "embedding", s.vocab_size, s.hidden), (-1, "output_norm", 1, s.hidden)]
    if not s.tied_output:
        found.append((-1, "output", s.vocab_size, s.hidden))
    for i, block in enumerate(s.layers):
        q, kv = block.heads * block.head_dim, block.kv_heads * block.head_dim
        found += [(i, "attn_norm", 1, s.hidden), (i, "mlp_norm", 1, s.hidden), (i, "o", s.hidden, q)]
        found += [(i, "q", q, s.hidden), (i, "k", kv, s.hidden), (i, "v", kv, s.hidden)]
        found += [(i, n, block.intermediate, s.hidden) for n in ("gate", "up")]
        found.append((i, "down", s.hidden, block.intermediate))
        if block.qkv_bias:
            found += [(i, "q_bias", 1, q), (i, "k_bias", 1, kv), (i, "v_bias", 1, kv)]
        if block.qk_norm:
            found += [(i, "q_norm", 1, block.head_dim), (i, "k_norm", 1, block.head_dim)]
        if block.post_norms:
            found += [(i, "attn_post_norm", 1, s.hidden), (i, "mlp_post_norm", 1, s.hidden)]
    return found


@dataclass(frozen=True)
class Tensor:
    layer: int
    slot: str
    kind: T
    rows: int
    cols: int
    data: NDArray[np.uint8]

    def values(self) -> NDArray[np.float32]:
        """[rows, cols], by the reference dequantiser."""
        return quants.dequantize(self.data, self.kind).reshape(self.rows, self.cols)


def tensors(s: ModelSpec, kinds: Sequence[T], seed: int = 0) -> list[Tensor]:
    """Random weights; matrices take the kinds in turn, vectors are F32."""
    rng = np.random.default_rng(seed)
    found: list[Tensor] = []
    for i, (where, slot, rows, cols) in enumerate(slots(s)):
        if rows == 1:
            base = 1.0 if slot.endswith("norm") else 0.0
            data = (base + 0.1 * rng.standard_normal((1, cols))).astype(np.float32)
            found.append(Tensor(where, slot, T.F32, rows, cols, data.view(np.uint8)))
        else:
            kind = kinds[i % len(kinds)]
            found.append(Tensor(where, slot, kind, rows, cols, quantized_bytes(rng, kind, rows, cols)))
    return found


def build(
    s: ModelSpec,
    weights: Sequence[Tensor],
    *,
    threads: int = 1,
    kv_blocks: int = 96,
    kv_type: KvType = "f16",
    activations: Activations = "int12",
) -> _core.Model:
    model = _core.Model(
        s,
        kv_blocks=kv_blocks,
        max_tokens=256,
        max_rows=64,
        threads=threads,
        kv_type=kv_type,
        activations=activations,
    )
    model.load((t.layer, t.slot, int(t.kind), t.rows, t.cols, t.data) for t in weights)
    return model


def greedy(rows: int) -> _core.SamplingBatch:
    """Sampling parameters of ``rows`` greedy rows."""
    i32, f32, u32 = (lambda v, n=rows, t=t: np.full(n, v, t) for t in (np.int32, np.float32, np.uint32))
    return _core.SamplingBatch(
        temperature=f32(0), top_k=i32(0), top_p=f32(1), min_p=f32(0),
        repetition_penalty=f32(1), presence_penalty=f32(0), frequency_penalty=f32(0),
        seed=np.zeros(rows, np.uint64), choice=u32(0), position=u32(0), logprobs=i32(-1),
        mask_rows=i32(-1), masks=np.zeros((0, 0), np.uint32),
        bias_starts=i32(0, rows + 1), bias_ids=i32(0, 0), bias_values=f32(0, 0),
        history_starts=i32(0, rows + 1), history_ids=i32(0, 0), history_counts=i32(0, 0),
    )  # fmt: skip


def outputs(rows: int) -> tuple[NDArray[np.int32], _core.SampleOutput]:
    tokens = np.zeros(rows, np.int32)
    return tokens, _core.SampleOutput(
        tokens=tokens,
        logprobs=np.zeros(rows, np.float32),
        top_ids=np.zeros((rows, 1), np.int32),
        top_logprobs=np.zeros((rows, 1), np.float32),
    )


@dataclass(frozen=True)
class Chunk:
    """New tokens of one sequence: their first position, and the sequence's pages."""

    tokens: Sequence[int]
    position: int
    table: Sequence[int]


def step(model: _core.Model, vocab: int, chunks: Sequence[Chunk]) -> list[NDArray[np.float32]]:
    """Run one step; the logits of every token, [tokens, vocab] per chunk."""
    starts = np.cumsum([0] + [len(c.tokens) for c in chunks]).astype(np.int32)
    width = max(len(c.table) for c in chunks)
    tables = np.full((len(chunks), width), -1, np.int32)
    for i, c in enumerate(chunks):
        tables[i, : len(c.table)] = c.table
    total = int(starts[-1])
    found: list[NDArray[np.float32]] = []
    for first in range(0, total, 64):  # max_rows a step: the step is repeated, which writes the same KV again
        rows = np.arange(first, min(total, first + 64), dtype=np.int32)
        logits = np.full((len(rows), vocab), np.nan, np.float32)
        _, out = outputs(len(rows))
        tokens = np.concatenate([np.asarray(c.tokens, np.int32) for c in chunks])
        positions = np.asarray([c.position for c in chunks], np.int32)
        model.step(tokens, starts, positions, tables, rows, greedy(len(rows)), out, logits)
        found.append(logits)
    logits = np.concatenate(found)
    return [logits[a:b] for a, b in pairwise(starts)]


def run_chunked(
    model: _core.Model, vocab: int, tokens: Sequence[int], table: Sequence[int], chunk: int
) -> NDArray[np.float32]:
    """Logits of every position of one sequence, fed ``chunk`` tokens a step."""
    parts = [step(model, vocab, [Chunk(tokens[i : i + chunk], i, table)])[0] for i in range(0, len(tokens), chunk)]
    return np.concatenate(parts)
