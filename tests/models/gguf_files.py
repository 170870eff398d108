"""Small GGUF files for tests, written with the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

VOCAB_WORDS = ["he", "ll", "hell", "hello", "Ġw", "or", "ld", "Ġworld"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "l d", "Ġw or", "Ġwor ld"]


def byte_letters() -> list[str]:
    """GPT-2's alphabet in order of bytes, computed the way its authors do."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = [], 0
    for byte in range(256):
        if byte in printable:
            letters.append(chr(byte))
        else:
            letters.append(chr(256 + extra))
            extra += 1
    return letters


def bpe_vocabulary(pre: str | None = "smollm", **extra: Any) -> dict[str, Any]:
    """Metadata of a byte-level vocabulary: the alphabet, a few words, ChatML markers, one user-defined token."""
    tokens = [*byte_letters(), *VOCAB_WORDS, "Ġwor", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>"]
    count = len(tokens)
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (count - 4) + [3, 3, 3, 4],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": count - 4,
        "tokenizer.ggml.eos_token_id": count - 2,
    }
    if pre is not None:
        metadata["tokenizer.ggml.pre"] = pre
    return metadata | extra


def spm_vocabulary(**extra: Any) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary with byte fallback."""
    pieces = ["▁", "h", "e", "l", "o", "w", "r", "d", "▁w", "he", "ll", "hell", "hello", "▁hello", "or", "ld", "▁wor"]
    pieces += ["▁world", "\n"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, "[tool]"]
    order = ["▁w", "he", "ll", "hell", "hello", "▁hello", "or", "ld", "▁wor", "▁world"]
    scores = [-float(order.index(piece)) if piece in order else -100.0 for piece in pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + scores + [0.0],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces) + [4],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    } | extra


def hyper_parameters(architecture: str, **extra: Any) -> dict[str, Any]:
    """Hyper-parameters of a tiny model: 2 layers, width 64, 4 heads over 2, 16 per head, 96 between."""
    values: dict[str, Any] = {
        "block_count": 2,
        "context_length": 128,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    } | {name.replace("__", "."): value for name, value in extra.items()}
    return {f"{architecture}.{name}": value for name, value in values.items() if value is not None}


def tensor_shapes(architecture: str, vocab_size: int, *, tied: bool = True) -> dict[str, tuple[int, ...]]:
    """Shapes (numpy order) of the tensors of the model of `hyper_parameters`."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab_size, 64), "output_norm.weight": (64,)}
    if not tied:
        shapes["output.weight"] = (vocab_size, 64)
    for n in range(2):
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (64,),
            "attn_q.weight": (64, 64),
            "attn_k.weight": (32, 64),
            "attn_v.weight": (32, 64),
            "attn_output.weight": (64, 64),
            "ffn_norm.weight": (64,),
            "ffn_gate.weight": (96, 64),
            "ffn_up.weight": (96, 64),
            "ffn_down.weight": (64, 96),
        }
        if architecture == "qwen2":
            layer |= {"attn_q.bias": (64,), "attn_k.bias": (32,), "attn_v.bias": (32,)}
        if architecture == "gemma3":
            layer |= {"attn_q_norm.weight": (16,), "attn_k_norm.weight": (16,)}
            layer |= {"post_attention_norm.weight": (64,), "post_ffw_norm.weight": (64,)}
        shapes |= {f"blk.{n}.{name}": shape for name, shape in layer.items()}
    return shapes


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    metadata: dict[str, Any],
    tensors: dict[str, np.ndarray] | None = None,
    *,
    architecture: str = "llama",
    quantized: dict[str, gguf.GGMLQuantizationType] | None = None,
) -> Path:
    """Write metadata (Python values; ints become uint32, floats float32) and tensors; ``quantized`` names types."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, values in (tensors or {}).items():
        kind = (quantized or {}).get(name)
        if kind is None:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_model(path: Path, architecture: str = "llama", *, tied: bool = True, **metadata: Any) -> Path:
    """A whole tiny model with a byte-level vocabulary; ``metadata`` replaces entries (None removes one)."""
    vocabulary = bpe_vocabulary()
    shapes = tensor_shapes(architecture, len(vocabulary["tokenizer.ggml.tokens"]), tied=tied)
    entries = hyper_parameters(architecture) | vocabulary | metadata
    return write_gguf(
        path,
        {key: value for key, value in entries.items() if value is not None},
        random_tensors(shapes),
        architecture=architecture,
    )


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
