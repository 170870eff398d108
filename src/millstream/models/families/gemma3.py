"""Gemma 3 (text): local attention in five of six layers, norms around each half of a block, norms on q and k.

The weights of the norms in GGUF already include the one that Gemma adds to them.
"""

from __future__ import annotations

from millstream.models.families.base import ATTENTION_WEIGHTS, GLOBAL_WEIGHTS, MLP_WEIGHTS, Family, WeightName
from millstream.models.families.hyper import Hyper
from millstream.models.families.rope import build_rope
from millstream.models.gguf import GGUFFile
from millstream.models.spec import LayerSpec, ModelSpec

_LOCAL_ROPE_BASE = 10000.0
_PATTERN = 6
_27B_LAYERS = 62


def build_spec(file: GGUFFile) -> ModelSpec:
    """Description of a model of architecture ``gemma3``. Raises `ModelFileError`."""
    hyper = Hyper(file)
    heads = hyper.per_layer("attention.head_count")
    kv_heads = hyper.per_layer("attention.head_count_kv", heads)
    intermediate = hyper.per_layer("feed_forward_length")
    head_dim = hyper.head_dim(heads)
    rope_dim = hyper.rope_dim(head_dim)
    local_base = hyper.positive("rope.freq_base_swa", _LOCAL_ROPE_BASE)
    local_rope = build_rope(hyper, style="half", dim=rope_dim, base=local_base, scaled=False)
    global_rope = build_rope(hyper, style="half", dim=rope_dim, base=hyper.positive("rope.freq_base", 1000000.0))
    window = hyper.integer("attention.sliding_window", 0)
    if not 0 <= window <= hyper.context_length:
        file.fail(f"metadata {hyper.key('attention.sliding_window')} is {window}")
    # query_pre_attn_scalar is not in the file: it is the head width, but hidden / heads in the 27B model.
    query_scalar = hyper.hidden / heads[0] if hyper.layers == _27B_LAYERS else head_dim
    softcap = hyper.softcap("attn_logit_softcapping")

    def layer(n: int) -> LayerSpec:
        is_local = window > 0 and n % _PATTERN < _PATTERN - 1
        return LayerSpec(
            heads=heads[n],
            kv_heads=kv_heads[n],
            head_dim=head_dim,
            intermediate=intermediate[n],
            attention_scale=query_scalar**-0.5,
            rope=local_rope if is_local else global_rope,
            window=window if is_local else 0,
            softcap=softcap,
            qk_norm=True,
            post_norms=True,
            activation="gelu_tanh",
        )

    return ModelSpec(
        family="gemma3",
        vocab_size=hyper.vocab_size(),
        hidden=hyper.hidden,
        context_length=hyper.context_length,
        norm_eps=hyper.positive("attention.layer_norm_rms_epsilon", 1e-6),
        layers=tuple(layer(n) for n in range(hyper.layers)),
        embedding_scale=hyper.hidden**0.5,
        final_softcap=hyper.softcap("final_logit_softcapping"),
        tied_output="output.weight" not in file.tensors,
    )


FAMILY = Family(
    architecture="gemma3",
    build_spec=build_spec,
    weights={
        **GLOBAL_WEIGHTS,
        **ATTENTION_WEIGHTS,
        **MLP_WEIGHTS,
        "attn_norm": WeightName("blk.{n}.attn_norm.weight", "model.layers.{n}.input_layernorm.weight"),
        "q_norm": WeightName("blk.{n}.attn_q_norm.weight", "model.layers.{n}.self_attn.q_norm.weight"),
        "k_norm": WeightName("blk.{n}.attn_k_norm.weight", "model.layers.{n}.self_attn.k_norm.weight"),
        "attn_post_norm": WeightName(
            "blk.{n}.post_attention_norm.weight", "model.layers.{n}.post_attention_layernorm.weight"
        ),
        "mlp_norm": WeightName("blk.{n}.ffn_norm.weight", "model.layers.{n}.pre_feedforward_layernorm.weight"),
        "mlp_post_norm": WeightName(
            "blk.{n}.post_ffw_norm.weight", "model.layers.{n}.post_feedforward_layernorm.weight"
        ),
    },
)
