"""What a model family file gives: a description made from metadata, and where each checkpoint tensor goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from millstream.models.gguf import GGUFFile
from millstream.models.spec import LayerSpec, ModelSpec, TensorSlot


class WeightName(NamedTuple):
    """The name of a weight in GGUF and in safetensors checkpoints; ``{n}`` is the layer number."""

    gguf: str
    safetensors: str


class Family(NamedTuple):
    """One architecture.

    ``weights``: slot -> names; a slot may appear under several names of which a file has one. ``consumed``: GGUF
    tensors that ``build_spec`` reads and that go to no slot.
    """

    architecture: str
    build_spec: Callable[[GGUFFile], ModelSpec]
    weights: dict[str, WeightName]
    consumed: frozenset[str] = frozenset()


GLOBAL_WEIGHTS = {
    "embedding": WeightName("token_embd.weight", "model.embed_tokens.weight"),
    "output_norm": WeightName("output_norm.weight", "model.norm.weight"),
    "output": WeightName("output.weight", "lm_head.weight"),
}

ATTENTION_WEIGHTS = {
    "q": WeightName("blk.{n}.attn_q.weight", "model.layers.{n}.self_attn.q_proj.weight"),
    "k": WeightName("blk.{n}.attn_k.weight", "model.layers.{n}.self_attn.k_proj.weight"),
    "v": WeightName("blk.{n}.attn_v.weight", "model.layers.{n}.self_attn.v_proj.weight"),
    "o": WeightName("blk.{n}.attn_output.weight", "model.layers.{n}.self_attn.o_proj.weight"),
}

ATTENTION_BIASES = {
    "q_bias": WeightName("blk.{n}.attn_q.bias", "model.layers.{n}.self_attn.q_proj.bias"),
    "k_bias": WeightName("blk.{n}.attn_k.bias", "model.layers.{n}.self_attn.k_proj.bias"),
    "v_bias": WeightName("blk.{n}.attn_v.bias", "model.layers.{n}.self_attn.v_proj.bias"),
}

MLP_WEIGHTS = {
    "gate": WeightName("blk.{n}.ffn_gate.weight", "model.layers.{n}.mlp.gate_proj.weight"),
    "up": WeightName("blk.{n}.ffn_up.weight", "model.layers.{n}.mlp.up_proj.weight"),
    "down": WeightName("blk.{n}.ffn_down.weight", "model.layers.{n}.mlp.down_proj.weight"),
}

PRE_NORMS = {
    "attn_norm": WeightName("blk.{n}.attn_norm.weight", "model.layers.{n}.input_layernorm.weight"),
    "mlp_norm": WeightName("blk.{n}.ffn_norm.weight", "model.layers.{n}.post_attention_layernorm.weight"),
}


def expected_shapes(spec: ModelSpec) -> Iterator[tuple[TensorSlot, int, int]]:
    """Every slot the description needs, with rows and columns (vectors: one row), in the order of the network."""
    yield TensorSlot(-1, "embedding"), spec.vocab_size, spec.hidden
    for number, layer in enumerate(spec.layers):
        for slot, rows, cols in _layer_shapes(spec.hidden, layer):
            yield TensorSlot(number, slot), rows, cols
    yield TensorSlot(-1, "output_norm"), 1, spec.hidden
    if not spec.tied_output:
        yield TensorSlot(-1, "output"), spec.vocab_size, spec.hidden


def _layer_shapes(hidden: int, layer: LayerSpec) -> Iterator[tuple[str, int, int]]:
    queries, keys = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    yield "attn_norm", 1, hidden
    yield "q", queries, hidden
    yield "k", keys, hidden
    yield "v", keys, hidden
    if layer.qkv_bias:
        yield "q_bias", 1, queries
        yield "k_bias", 1, keys
        yield "v_bias", 1, keys
    if layer.qk_norm:
        yield "q_norm", 1, layer.head_dim
        yield "k_norm", 1, layer.head_dim
    yield "o", hidden, queries
    if layer.post_norms:
        yield "attn_post_norm", 1, hidden
    yield "mlp_norm", 1, hidden
    yield "gate", layer.intermediate, hidden
    yield "up", layer.intermediate, hidden
    yield "down", hidden, layer.intermediate
    if layer.post_norms:
        yield "mlp_post_norm", 1, hidden
