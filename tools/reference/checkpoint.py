"""From a GGUF file to a Transformers model whose parameters are exactly the dequantised values.

The mapping is written out and does not use Transformers' own GGUF loader, so that two readings of the format exist;
`differences` compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

GEMMA_LOCAL_THETA = 10000.0
GEMMA_PATTERN = 6
"""Every sixth layer of Gemma 3 sees all positions; the file does not say so."""

_GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_GEMMA_LAYER_NAMES = {
    **_LAYER_NAMES,
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}


class Checkpoint:
    """An open GGUF file: metadata by key, and tensors under Transformers' names."""

    def __init__(self, path: Path) -> None:
        self._reader = gguf.GGUFReader(path)
        self.family: str = self["general.architecture"]
        self.tied_output = all(tensor.name != "output.weight" for tensor in self._reader.tensors)

    def __getitem__(self, key: str) -> Any:
        field = self._reader.get_field(key)
        if field is None:
            raise KeyError(key)
        return field.contents()

    def get(self, key: str, default: Any) -> Any:
        """A metadata value of the architecture: ``get("rope.freq_base", 1e4)`` reads ``llama.rope.freq_base``."""
        field = self._reader.get_field(f"{self.family}.{key}")
        return default if field is None else field.contents()

    def value(self, key: str) -> Any:
        """As `get`, for a key that must be there."""
        return self[f"{self.family}.{key}"]

    def vocab_size(self) -> int:
        return len(self["tokenizer.ggml.tokens"])

    def head_dim(self) -> int:
        return int(
            self.get("attention.key_length", self.value("embedding_length") // self.value("attention.head_count"))
        )

    def parameters(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Every tensor, dequantised, in the layout that Transformers wants."""
        names = _GEMMA_LAYER_NAMES if self.family == "gemma3" else _LAYER_NAMES
        for tensor in self._reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            if tensor.name in _GLOBAL_NAMES:
                name = _GLOBAL_NAMES[tensor.name]
            else:
                _, layer, kind = tensor.name.split(".", 2)
                name = f"model.layers.{layer}.{names[kind]}"
            yield name, self._layout(name, values)

    def _layout(self, name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.family == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            return pair_halves(values, self.head_dim())
        if self.family == "gemma3" and name.endswith("norm.weight"):
            # Transformers multiplies by 1 + weight. The subtraction is exact for weights of at least one half.
            return values - np.float32(1.0)
        return values


def pair_halves(weight: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
    """Undo GGUF's row order of llama's q and k: rows 2i, 2i + 1 of a head go back to i, i + head_dim / 2."""
    heads = weight.shape[0] // head_dim
    pairs = weight.reshape(heads, head_dim // 2, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))


def load_reference(path: Path) -> PreTrainedModel:
    """The model of a GGUF file in float32, with eager attention, ready for inference."""
    checkpoint = Checkpoint(path)
    model_class, config = _describe(checkpoint)
    config._attn_implementation = "eager"
    model = model_class(config)
    state = {name: torch.from_numpy(np.array(values)) for name, values in checkpoint.parameters()}
    if checkpoint.tied_output:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    model.eval().requires_grad_(False)
    if model.config._attn_implementation != "eager" or any(p.dtype != torch.float32 for p in model.parameters()):
        raise RuntimeError("the reference must run eager attention in float32")
    return model


def _describe(checkpoint: Checkpoint) -> tuple[type[PreTrainedModel], Any]:
    head_dim = checkpoint.head_dim()
    layers = checkpoint.value("block_count")
    theta = checkpoint.get("rope.freq_base", 10000.0)
    common: dict[str, Any] = {
        "vocab_size": checkpoint.vocab_size(),
        "hidden_size": checkpoint.value("embedding_length"),
        "intermediate_size": checkpoint.value("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": checkpoint.value("attention.head_count"),
        "num_key_value_heads": checkpoint.value("attention.head_count_kv"),
        "head_dim": head_dim,
        "max_position_embeddings": checkpoint.value("context_length"),
        "rms_norm_eps": checkpoint.value("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": checkpoint.tied_output,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    plain_rope = {"rope_type": "default", "rope_theta": theta}
    if checkpoint.family == "llama":
        return LlamaForCausalLM, LlamaConfig(**common, rope_parameters=plain_rope)
    if checkpoint.family == "qwen2":
        return Qwen2ForCausalLM, Qwen2Config(**common, rope_parameters=plain_rope, use_sliding_window=False)
    if checkpoint.family == "gemma3":
        is_global = [(n + 1) % GEMMA_PATTERN == 0 for n in range(layers)]
        return Gemma3ForCausalLM, Gemma3TextConfig(
            **common,
            query_pre_attn_scalar=head_dim,
            sliding_window=checkpoint.value("attention.sliding_window"),
            layer_types=["full_attention" if full else "sliding_attention" for full in is_global],
            rope_parameters={
                "full_attention": plain_rope,
                "sliding_attention": {"rope_type": "default", "rope_theta": GEMMA_LOCAL_THETA},
            },
        )
    raise ValueError(f"no reference for the architecture {checkpoint.family!r}")


def differences(path: Path) -> list[str]:
    """Parameters and buffers in which Transformers' own GGUF loader disagrees with `load_reference`, one line each."""
    ours = load_reference(path)
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    found: list[str] = []
    left = {**ours.state_dict(), **dict(ours.named_buffers())}
    right = {**theirs.state_dict(), **dict(theirs.named_buffers())}
    for name in sorted(left.keys() | right.keys()):
        if name not in left or name not in right:
            found.append(f"{name}: only in {'ours' if name in left else 'theirs'}")
        elif left[name].shape != right[name].shape:
            found.append(f"{name}: shapes {tuple(left[name].shape)} and {tuple(right[name].shape)}")
        elif not torch.equal(left[name], right[name]):
            found.append(f"{name}: differs by {(left[name] - right[name]).abs().max().item():.3g}")
    return found
