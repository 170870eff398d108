"""Llama 1 to 3 and what shares their architecture: SmolLM2, TinyLlama, Mistral, Yi, Falcon 3, ….

GGUF stores the rows of q and k permuted, so the rotation pairs neighbouring dimensions.
"""

from __future__ import annotations

from millstream.models.families.base import Family
from millstream.models.families.dense import DENSE_WEIGHTS, dense_spec
from millstream.models.families.hyper import Hyper
from millstream.models.families.rope import build_rope, divided, rope_factors
from millstream.models.gguf import GGUFFile
from millstream.models.spec import ModelSpec, RopeSpec


def build_spec(file: GGUFFile) -> ModelSpec:
    """Description of a model of architecture ``llama``. Raises `ModelFileError`."""
    hyper = Hyper(file)

    def rope(dim: int) -> RopeSpec:
        base = hyper.positive("rope.freq_base", 10000.0)
        return divided(build_rope(hyper, style="interleaved", dim=dim, base=base), rope_factors(hyper, dim))

    return dense_spec(hyper, rope=rope, qkv_bias=lambda n: f"blk.{n}.attn_q.bias" in file.tensors)


FAMILY = Family(
    architecture="llama",
    build_spec=build_spec,
    weights=DENSE_WEIGHTS,
    consumed=frozenset({"rope_freqs.weight"}),
)
