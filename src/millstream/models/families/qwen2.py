"""Qwen2 and Qwen2.5: Llama with biases on q, k and v."""

from __future__ import annotations

from millstream.models.families.base import (
    ATTENTION_BIASES,
    ATTENTION_WEIGHTS,
    GLOBAL_WEIGHTS,
    MLP_WEIGHTS,
    PRE_NORMS,
    Family,
)
from millstream.models.families.hyper import Hyper
from millstream.models.families.rope import build_rope
from millstream.models.gguf import GGUFFile
from millstream.models.spec import LayerSpec, ModelSpec


def build_spec(file: GGUFFile) -> ModelSpec:
    """Description of a model of architecture ``qwen2``. Raises `ModelFileError`."""
    hyper = Hyper(file)
    heads = hyper.per_layer("attention.head_count")
    kv_heads = hyper.per_layer("attention.head_count_kv", heads)
    intermediate = hyper.per_layer("feed_forward_length")
    head_dim = hyper.head_dim(heads)
    rope = build_rope(hyper, style="half", dim=hyper.rope_dim(head_dim), base=hyper.positive("rope.freq_base", 10000.0))
    return ModelSpec(
        family="qwen2",
        vocab_size=hyper.vocab_size(),
        hidden=hyper.hidden,
        context_length=hyper.context_length,
        norm_eps=hyper.positive("attention.layer_norm_rms_epsilon"),
        layers=tuple(
            LayerSpec(
                heads=heads[n],
                kv_heads=kv_heads[n],
                head_dim=head_dim,
                intermediate=intermediate[n],
                attention_scale=head_dim**-0.5,
                rope=rope,
                qkv_bias=True,
            )
            for n in range(hyper.layers)
        ),
        tied_output="output.weight" not in file.tensors,
    )


FAMILY = Family(
    architecture="qwen2",
    build_spec=build_spec,
    weights={**GLOBAL_WEIGHTS, **PRE_NORMS, **ATTENTION_WEIGHTS, **ATTENTION_BIASES, **MLP_WEIGHTS},
)
