"""Complete tiny GGUF files: every family, every tensor type, a tokenizer and a chat template, built in milliseconds.

    path = build_tiny_model(tmp_path / "tiny.gguf", family="gemma3", types="Q8_0", seed=7)

The same arguments give the same bytes on every machine. The weights are random, so the text is noise, but all the
machinery around it is that of a real model: the whole server runs on such a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from numpy.typing import NDArray

from support.tiny_blocks import Source, random_matrix

Family = Literal["llama", "qwen2", "gemma3"]
FAMILIES: tuple[Family, ...] = ("llama", "qwen2", "gemma3")
TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIALS = (END_OF_TEXT, IM_START, IM_END)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORD_MERGES = ("t h", "h e", "i n", "e r", "Ġ t", "Ġ a", "th e", "Ġ the", "o n", "Ġ s", "a n", "r e")
"""A few pairs, so that tokens of one and of many characters exist. Vocabulary: 256 bytes, these, the specials: 271."""


@dataclass(frozen=True)
class TinyShape:
    """Sizes of a tiny model. Every matrix row is a multiple of 32; nothing that may be odd is a power of two.

    ``norm_eps`` is far above the usual one, so that an engine that forgets it shows.
    """

    hidden: int = 96
    heads: int = 3
    kv_heads: int = 1
    head_dim: int = 32
    intermediate: int = 160
    layers: int = 3
    context: int = 512
    tied_output: bool = True
    window: int = 8
    rope_theta: float = 10000.0
    norm_eps: float = 1e-3
    unused_tokens: int = 0
    """Tokens of the vocabulary that no text has."""

    @property
    def vocab(self) -> int:
        return vocab_size() + self.unused_tokens

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


def tiny_shape(family: Family, *, k_blocks: bool = False) -> TinyShape:
    """The usual shape of a family. ``k_blocks``: every matrix row is a multiple of 256, as the K types need.

    Gemma has a query width that is not the hidden width, and enough layers for one global layer between windowed ones.
    """
    shape = TinyShape()
    if family == "gemma3":
        shape = replace(shape, heads=4, kv_heads=2, layers=7, rope_theta=1e6)
    if k_blocks:
        shape = replace(shape, hidden=256, heads=4, kv_heads=2, head_dim=64, intermediate=512)
    return shape


def build_tiny_model(
    path: Path,
    *,
    family: Family = "llama",
    types: str | Mapping[str, str] = "F32",
    seed: int = 0,
    shape: TinyShape | None = None,
) -> Path:
    """Write a tiny model and return its path.

    ``types``: a type of `TYPES` for all matrices, or a mapping from GGUF tensor kinds (``token_embd``, ``attn_q``,
    ``ffn_down``, …) to types, with ``default`` for the rest (F32 if it is absent). Norms and biases are F32, as always.
    ``shape``: the family's usual one that fits the types if not given.
    """
    named = {"default": types} if isinstance(types, str) else dict(types)
    if shape is None:
        shape = tiny_shape(family, k_blocks=any(name.endswith("_K") for name in named.values()))
    writer = GGUFWriter(path, family)
    _add_metadata(writer, family, shape)
    _add_tokenizer(writer, family, shape.unused_tokens)
    for name, rows, cols, std in matrices(family, shape):
        qtype = GGMLQuantizationType[named.get(_kind(name), named.get("default", "F32"))]
        data = random_matrix(Source(seed, name), qtype, rows, cols, std)
        writer.add_tensor(name, data, raw_dtype=qtype)
    for name, values in vectors(family, shape, seed):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def matrices(family: Family, shape: TinyShape) -> Iterator[tuple[str, int, int, float]]:
    """Name, rows, columns and standard deviation of every matrix, such that logits spread over a few units."""
    hidden, logit_std = shape.hidden, 2.5 / shape.hidden**0.5
    yield "token_embd.weight", shape.vocab, hidden, logit_std
    if not shape.tied_output:
        yield "output.weight", shape.vocab, hidden, logit_std
    for layer in range(shape.layers):
        prefix = f"blk.{layer}."
        yield prefix + "attn_q.weight", shape.q_width, hidden, 1.5 / hidden**0.5
        yield prefix + "attn_k.weight", shape.kv_width, hidden, 1.5 / hidden**0.5
        yield prefix + "attn_v.weight", shape.kv_width, hidden, 1 / hidden**0.5
        yield prefix + "attn_output.weight", hidden, shape.q_width, 1 / shape.q_width**0.5
        yield prefix + "ffn_gate.weight", shape.intermediate, hidden, 1 / hidden**0.5
        yield prefix + "ffn_up.weight", shape.intermediate, hidden, 1 / hidden**0.5
        yield prefix + "ffn_down.weight", hidden, shape.intermediate, 1 / shape.intermediate**0.5


def vectors(family: Family, shape: TinyShape, seed: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Norm weights around 1 and biases around 0; multiples of 2^-10, so that Gemma's "weight − 1" is exact too."""

    def around(name: str, centre: float, spread: float, size: int) -> tuple[str, NDArray[np.float32]]:
        values = centre + spread * Source(seed, name).uniform((size,))
        return name, (np.round(values * 1024) / 1024).astype(np.float32)

    yield around("output_norm.weight", 1.0, 0.25, shape.hidden)
    for layer in range(shape.layers):
        prefix = f"blk.{layer}."
        yield around(prefix + "attn_norm.weight", 1.0, 0.25, shape.hidden)
        yield around(prefix + "ffn_norm.weight", 1.0, 0.25, shape.hidden)
        if family == "qwen2":
            yield around(prefix + "attn_q.bias", 0.0, 0.5, shape.q_width)
            yield around(prefix + "attn_k.bias", 0.0, 0.5, shape.kv_width)
            yield around(prefix + "attn_v.bias", 0.0, 0.5, shape.kv_width)
        if family == "gemma3":
            yield around(prefix + "attn_q_norm.weight", 1.0, 0.25, shape.head_dim)
            yield around(prefix + "attn_k_norm.weight", 1.0, 0.25, shape.head_dim)
            yield around(prefix + "post_attention_norm.weight", 1.0, 0.25, shape.hidden)
            yield around(prefix + "post_ffw_norm.weight", 1.0, 0.25, shape.hidden)


def vocabulary() -> list[str]:
    """Tokens in GPT-2's byte alphabet, by id: 256 bytes, the merged words, the special tokens."""
    return [*_byte_alphabet(), *(merge.replace(" ", "") for merge in WORD_MERGES), *SPECIALS]


def vocab_size() -> int:
    return 256 + len(WORD_MERGES) + len(SPECIALS)


def special_id(name: str) -> int:
    """Id of one of `SPECIALS`."""
    return 256 + len(WORD_MERGES) + SPECIALS.index(name)


def _kind(name: str) -> str:
    """``attn_q`` for ``blk.3.attn_q.weight``."""
    return name.removesuffix(".weight").split(".")[-1]


def _byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in GPT-2's vocabulary."""
    kept = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(shifted)) for byte in range(256)]


def _add_metadata(writer: GGUFWriter, family: Family, shape: TinyShape) -> None:
    writer.add_name(f"Tiny {family}")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_freq_base(shape.rope_theta)
    if family != "qwen2" or shape.q_width != shape.hidden:
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.head_dim)
    if family == "llama":
        writer.add_rope_dimension_count(shape.head_dim)
        writer.add_vocab_size(shape.vocab)
    if family == "gemma3":
        writer.add_sliding_window(shape.window)


def _add_tokenizer(writer: GGUFWriter, family: Family, unused: int) -> None:
    normal = vocab_size() - len(SPECIALS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if family == "llama" else "qwen2")
    writer.add_token_list([*vocabulary(), *(f"<unused{i}>" for i in range(unused))])
    types = [TokenType.NORMAL] * normal + [TokenType.CONTROL] * len(SPECIALS) + [TokenType.UNUSED] * unused
    writer.add_token_types(types)
    writer.add_token_merges(list(WORD_MERGES))
    writer.add_bos_token_id(special_id(END_OF_TEXT))
    writer.add_eos_token_id(special_id(IM_END))
    writer.add_pad_token_id(special_id(END_OF_TEXT))
    writer.add_add_bos_token(family == "gemma3")
    writer.add_chat_template(CHAT_TEMPLATE)
