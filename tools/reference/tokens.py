"""Tokenizer and chat template of a GGUF file, as Transformers reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from reference.checkpoint import Checkpoint


def load_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a GGUF file.

    Transformers does not read ``tokenizer.ggml.pre`` for the llama architecture; SmolLM's rule (digits are split off
    before the GPT-2 pattern is applied) is put back here.
    """
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    if Checkpoint(path)["tokenizer.ggml.pre"] == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    return tokenizer


def chat_text(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, Any]]) -> str:
    """A conversation rendered by the file's own template, ready for the assistant's answer."""
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """Token ids, with BOS only where the file asks for it; special tokens in the text are recognised."""
    return list(tokenizer(text)["input_ids"])
