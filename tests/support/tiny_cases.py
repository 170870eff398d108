"""The tiny models that have golden logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from support.tiny_blocks import Source
from support.tiny_models import FAMILIES, TYPES, Family, build_tiny_model, tiny_shape, vocab_size

MIXED = {"default": "Q4_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q8_0", "attn_k": "Q5_0"}
"""Types as a published Q4_K_M file mixes them."""


@dataclass(frozen=True)
class TinyCase:
    """One model and one prompt. ``stride``: every how many positions logits are kept (the last always is)."""

    name: str
    family: Family
    types: str | Mapping[str, str]
    tied_output: bool = True
    length: int = 45
    stride: int = 1
    seed: int = field(default=7)

    def build(self, folder: Path) -> Path:
        """The model file, written into a folder."""
        names = [self.types] if isinstance(self.types, str) else list(self.types.values())
        shape = tiny_shape(self.family, k_blocks=any(name.endswith("_K") for name in names))
        return build_tiny_model(
            folder / f"{self.name}.gguf",
            family=self.family,
            types=self.types,
            seed=self.seed,
            shape=replace(shape, tied_output=self.tied_output),
        )

    def prompt(self) -> NDArray[np.int32]:
        return Source(self.seed, f"prompt of {self.name}").integers(0, vocab_size(), (self.length,)).astype(np.int32)

    def rows(self) -> NDArray[np.int32]:
        return np.arange(self.length - 1, -1, -self.stride, dtype=np.int32)[::-1].copy()


def _cases() -> list[TinyCase]:
    """45 tokens cross a KV page and several windows of Gemma; 300 cross a part of the attention's fixed split."""
    cases = [TinyCase(f"{family}-{name.lower()}", family, name) for family in FAMILIES for name in TYPES]
    for family in FAMILIES:
        cases.append(TinyCase(f"{family}-mixed", family, MIXED))
        cases.append(TinyCase(f"{family}-long", family, "Q8_0", length=300, stride=12, seed=8))
        cases.append(TinyCase(f"{family}-untied", family, "Q5_1", tied_output=False, length=20, seed=9))
    return cases


TINY_CASES = {case.name: case for case in _cases()}
