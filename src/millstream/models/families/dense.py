"""What Llama and its like share: pre-norm blocks of attention and a gated MLP, all layers rotated alike."""

from __future__ import annotations

from collections.abc import Callable

from millstream.models.families.base import (
    ATTENTION_BIASES,
    ATTENTION_WEIGHTS,
    GLOBAL_WEIGHTS,
    MLP_WEIGHTS,
    PRE_NORMS,
)
from millstream.models.families.hyper import Hyper
from millstream.models.spec import LayerSpec, ModelSpec, RopeSpec

DENSE_WEIGHTS = {**GLOBAL_WEIGHTS, **PRE_NORMS, **ATTENTION_WEIGHTS, **ATTENTION_BIASES, **MLP_WEIGHTS}


def dense_spec(hyper: Hyper, *, rope: Callable[[int], RopeSpec], qkv_bias: Callable[[int], bool]) -> ModelSpec:
    """The description of such a model. ``rope``: of heads with so many rotated dimensions; ``qkv_bias``: whether layer
    n has biases on q, k and v. Raises `ModelFileError`."""
    heads = hyper.per_layer("attention.head_count")
    kv_heads = hyper.per_layer("attention.head_count_kv", heads)
    intermediate = hyper.per_layer("feed_forward_length")
    head_dim = hyper.head_dim(heads)
    rotated = rope(hyper.rope_dim(head_dim))
    return ModelSpec(
        family=hyper.prefix,
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
                rope=rotated,
                qkv_bias=qkv_bias(n),
            )
            for n in range(hyper.layers)
        ),
        tied_output="output.weight" not in hyper.file.tensors,
    )
