"""How far less exact arithmetic is from the reference: mean KL divergence of next-token distributions.

The variants are the reference model with one thing made worse, so they show what a measured number of the engine means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from reference.checkpoint import load_reference
from reference.golden import all_logits
from support.goldens import bucket_kl, full_kl, log_softmax, text_golden

GROUP = 32
CHUNK = 50


def quantise_activations(model: PreTrainedModel, levels: int) -> None:
    """Round the input of every linear layer to integers of at most ``levels`` per group of 32, as the engine does."""

    def hook(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        x, *rest = inputs
        groups = x.reshape(-1, GROUP)
        scale = groups.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / levels
        return ((groups / scale).round() * scale).reshape(x.shape), *rest

    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(hook)


def half_kv(model: PreTrainedModel) -> None:
    """Round keys and values to f16, as they are in the KV cache."""
    model.set_attn_implementation("eager_half_kv")


def _eager_half_kv(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    keys = repeat_kv(key.half().float(), module.num_key_value_groups)
    values = repeat_kv(value.half().float(), module.num_key_value_groups)
    scores = query @ keys.transpose(2, 3) * scaling + attention_mask
    return (scores.softmax(dim=-1) @ values).transpose(1, 2).contiguous(), None


def _engine_like(model: PreTrainedModel, levels: int) -> None:
    quantise_activations(model, levels)
    half_kv(model)


VARIANTS: dict[str, Callable[[PreTrainedModel], None]] = {
    "float64": lambda model: model.double() and None,
    "bfloat16": lambda model: model.bfloat16() and None,
    "8-bit activations": lambda model: quantise_activations(model, 127),
    "12-bit activations": lambda model: quantise_activations(model, 2047),
    "f16 keys and values": half_kv,
    "12-bit activations, f16 keys and values": lambda model: _engine_like(model, 2047),
}


def report(name: str, path: Path) -> None:
    """Print full and bucket KL, mean and maximum over the golden text, and the largest logit error."""
    golden = text_golden(name)
    exact = all_logits(load_reference(path), golden.tokens)
    for title, logits in _candidates(path, golden.tokens):
        full, bucket = [], []
        for start in range(0, len(golden.tokens), CHUNK):
            rows = slice(start, start + CHUNK)
            full.append(full_kl(log_softmax(exact[rows]), log_softmax(logits[rows])))
            bucket.append(bucket_kl(golden, rows, logits[rows]))
        kl, lower = np.concatenate(full), np.concatenate(bucket)
        error = np.abs(logits - exact).max()
        agree = (logits.argmax(axis=1) == exact.argmax(axis=1)).mean()
        print(
            f"{name}: {title}: KL mean {kl.mean():.3g} max {kl.max():.3g}, over {golden.ids.shape[1]} + 1 buckets "
            f"{lower.mean():.3g}; largest logit error {error:.3g}; same best token {agree:.1%}",
            flush=True,
        )


def _candidates(path: Path, tokens: NDArray[np.int32]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    try:
        from support.engine import Engine
    except ImportError:
        print("millstream is not installed here: the engine is left out")
    else:
        with Engine(path) as engine:
            yield "engine", engine.logits(tokens)
    for title, degrade in VARIANTS.items():
        model = load_reference(path)
        degrade(model)
        yield title, all_logits(model, tokens)


AttentionInterface.register("eager_half_kv", _eager_half_kv)
AttentionMaskInterface.register("eager_half_kv", eager_mask)
