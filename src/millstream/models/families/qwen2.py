"""Qwen2 and Qwen2.5: Llama with biases on q, k and v."""

from __future__ import annotations

from millstream.models.families.base import Family
from millstream.models.families.dense import DENSE_WEIGHTS, dense_spec
from millstream.models.families.hyper import Hyper
from millstream.models.families.rope import build_rope
from millstream.models.gguf import GGUFFile
from millstream.models.spec import ModelSpec, RopeSpec


def build_spec(file: GGUFFile) -> ModelSpec:
    """Description of a model of architecture ``qwen2``. Raises `ModelFileError`."""
    hyper = Hyper(file)

    def rope(dim: int) -> RopeSpec:
        return build_rope(hyper, style="half", dim=dim, base=hyper.positive("rope.freq_base", 10000.0))

    return dense_spec(hyper, rope=rope, qkv_bias=lambda _: True)


FAMILY = Family(architecture="qwen2", build_spec=build_spec, weights=DENSE_WEIGHTS)
