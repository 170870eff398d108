"""The description of a model that the native core interprets. A family file builds it from a checkpoint's metadata.

Shapes follow the usual names: ``hidden`` (residual width), ``heads`` query heads and ``kv_heads`` key/value heads of
``head_dim``, ``intermediate`` (MLP width). The native core reads these attributes by name.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class RopeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Rotary position embedding.

    ``style``: ``half`` rotates dimension i with i + dim/2, ``interleaved`` 2i with 2i + 1 (as GGUF stores the llama
    family). ``inv_freq``: dim/2 inverse frequencies with every scaling rule already applied, in radians per position.
    ``scale`` multiplies cosine and sine (YaRN's attention factor).
    """

    style: Literal["half", "interleaved"]
    inv_freq: tuple[float, ...]
    scale: float = 1.0


class LayerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One transformer block: attention, then MLP, each with its residual.

    ``attention_scale`` multiplies q·k. ``window``: a position sees the last ``window`` positions, itself included;
    0 sees all. ``softcap`` 0 is none. ``qk_norm``: RMS norm over each head of q and k before the rotation.
    ``post_norms``: RMS norm on the output of attention and of the MLP before the residual is added (Gemma).
    """

    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    attention_scale: float
    rope: RopeSpec
    window: int = 0
    softcap: float = 0.0
    qk_norm: bool = False
    qkv_bias: bool = False
    post_norms: bool = False
    activation: Literal["silu", "gelu_tanh"] = "silu"


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder-only transformer. ``tied_output``: the output head is the embedding table."""

    family: str
    vocab_size: int
    hidden: int
    context_length: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    embedding_scale: float = 1.0
    final_softcap: float = 0.0
    tied_output: bool = False


GLOBAL_SLOTS = ("embedding", "output", "output_norm")
LAYER_SLOTS = (
    "attn_norm", "q", "k", "v", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm", "o", "attn_post_norm",
    "mlp_norm", "gate", "up", "down", "mlp_post_norm",
)  # fmt: skip


class TensorSlot(msgspec.Struct, frozen=True):
    """Where a checkpoint tensor goes: a slot name of `GLOBAL_SLOTS` (layer -1) or of `LAYER_SLOTS`."""

    layer: int
    slot: str
