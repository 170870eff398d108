"""Compute goldens with the reference model. Formats: tests/support/goldens.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from reference.checkpoint import Checkpoint, load_reference
from reference.prompts import CHATS, PLAIN, TEXT
from reference.tokens import chat_text, encode, load_tokenizer
from support.goldens import TOP, GreedyGolden, GreedyRun, file_sha256
from support.tiny_cases import TinyCase

MAX_NEW_TOKENS = 48
TEXT_TOKENS = 500


@torch.inference_mode()
def all_logits(model: PreTrainedModel, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """Logits at every position of one sequence, [T, vocab]."""
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0].float()
    return logits.numpy()


def prompts(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Text and ids of the model's 20 prompts: conversations if the file has a chat template, else plain texts."""
    tokenizer = load_tokenizer(path)
    texts = [chat_text(tokenizer, chat) for chat in CHATS] if tokenizer.chat_template else PLAIN
    for text in texts:
        yield text, encode(tokenizer, text)


def write_greedy(path: Path, target: Path) -> None:
    """Greedy continuations, by Transformers' own ``generate``."""
    pairs = list(prompts(path))
    eos = int(Checkpoint(path)["tokenizer.ggml.eos_token_id"])
    answers = _continue(load_reference(path), [ids for _, ids in pairs], eos)
    runs = [GreedyRun(text, ids, *answer) for (text, ids), answer in zip(pairs, answers, strict=True)]
    golden = GreedyGolden(sha256=file_sha256(path), runs=runs)
    target.write_bytes(msgspec.json.format(msgspec.json.encode(golden), indent=0) + b"\n")


@torch.inference_mode()
def _continue(model: PreTrainedModel, prompts: list[list[int]], eos: int) -> list[tuple[list[int], list[float]]]:
    """Tokens and gaps of each prompt. All run in one batch, padded on the left where attention does not look."""
    width = max(map(len, prompts))
    padding = [width - len(prompt) for prompt in prompts]
    out: Any = model.generate(
        torch.tensor([[eos] * pad + prompt for pad, prompt in zip(padding, prompts, strict=True)]),
        attention_mask=torch.tensor([[0] * pad + [1] * (width - pad) for pad in padding]),
        do_sample=False,
        max_new_tokens=MAX_NEW_TOKENS,
        eos_token_id=eos,
        pad_token_id=eos,
        return_dict_in_generate=True,
        output_logits=True,
    )
    best = torch.stack(out.logits, dim=1).topk(2).values
    gaps = (best[..., 0] - best[..., 1]).tolist()
    answers: list[tuple[list[int], list[float]]] = []
    for tokens, row in zip(out.sequences[:, width:].tolist(), gaps, strict=True):
        length = tokens.index(eos) + 1 if eos in tokens else len(tokens)
        answers.append((tokens[:length], [round(gap, 5) for gap in row[:length]]))
    return answers


def text_tokens(path: Path) -> NDArray[np.int32]:
    """The first `TEXT_TOKENS` ids of the text."""
    return np.array(encode(load_tokenizer(path), TEXT)[:TEXT_TOKENS], dtype=np.int32)


def write_text(path: Path, target: Path) -> None:
    """Distributions of the next token over the text."""
    tokens = text_tokens(path)
    log_p = torch.from_numpy(all_logits(load_reference(path), tokens)).double().log_softmax(dim=-1)
    top = log_p.topk(TOP)
    tail = log_p.exp().scatter(1, top.indices, 0.0).sum(dim=-1)
    np.savez_compressed(
        target,
        text=np.array(TEXT),
        tokens=tokens,
        ids=top.indices.numpy().astype(np.int32),
        logprobs=top.values.numpy().astype(np.float32),
        tail=tail.numpy().astype(np.float32),
    )


def write_tiny(cases: list[TinyCase], folder: Path, target: Path) -> None:
    """Logits of tiny models, which are built in ``folder``."""
    arrays: dict[str, NDArray[Any]] = {}
    for case in cases:
        path = case.build(folder)
        prompt, rows = case.prompt(), case.rows()
        arrays[f"{case.name}.sha256"] = np.array(file_sha256(path))
        arrays[f"{case.name}.prompt"] = prompt
        arrays[f"{case.name}.rows"] = rows
        arrays[f"{case.name}.logits"] = all_logits(load_reference(path), prompt)[rows]
    np.savez_compressed(target, **arrays)
