"""Golden files: what Transformers computed in float32 on the dequantised weights. Written by tools/oracle.py.

Reading needs numpy and msgspec only. Three kinds of files, all in tests/oracle/goldens:

- ``<model>-greedy.json``: prompts with their greedy continuations,
- ``<model>-text.npz``: next-token distributions over one text,
- ``tiny.npz``: logits of tiny random models.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

GOLDENS = Path(__file__).resolve().parent.parent / "oracle" / "goldens"
TOP = 256
"""Tokens whose probability is kept at each position; all others share one bucket."""


class GreedyRun(msgspec.Struct, frozen=True):
    """A prompt and its greedy continuation, up to 48 tokens or the end of the turn (which is its last token).

    ``text`` is the whole prompt, chat markup included; ``gaps[i]`` is the logit of ``tokens[i]`` minus the second best.
    """

    text: str
    prompt: list[int]
    tokens: list[int]
    gaps: list[float]


class GreedyGolden(msgspec.Struct, frozen=True):
    """All runs of a model; ``sha256`` is that of its file."""

    sha256: str
    runs: list[GreedyRun]


class TextGolden(NamedTuple):
    """Distributions of the next token after each position of a text.

    ``tokens`` [T]; ``ids`` and ``logprobs`` [T, TOP], best first; ``tail`` [T] the probability of all other tokens.
    """

    text: str
    tokens: NDArray[np.int32]
    ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    tail: NDArray[np.float32]


class TinyGolden(NamedTuple):
    """``logits`` [rows, vocab] at ``rows`` of ``prompt``; ``sha256`` of the model file that was built for it."""

    sha256: str
    prompt: NDArray[np.int32]
    rows: NDArray[np.int32]
    logits: NDArray[np.float32]


def golden_models(kind: Literal["greedy", "text"]) -> list[str]:
    """The models of which a golden of this kind is committed."""
    return sorted(path.stem.removesuffix(f"-{kind}") for path in GOLDENS.glob(f"*-{kind}.*"))


def greedy_golden(model: str) -> GreedyGolden:
    return msgspec.json.decode((GOLDENS / f"{model}-greedy.json").read_bytes(), type=GreedyGolden)


def text_golden(model: str) -> TextGolden:
    with np.load(GOLDENS / f"{model}-text.npz") as data:
        return TextGolden(str(data["text"]), *(data[name] for name in TextGolden._fields[1:]))


def tiny_golden(name: str) -> TinyGolden:
    with np.load(GOLDENS / "tiny.npz") as data:
        return TinyGolden(
            str(data[f"{name}.sha256"]), data[f"{name}.prompt"], data[f"{name}.rows"], data[f"{name}.logits"]
        )


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def log_softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Natural-log probabilities of each row, in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    normalised: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


def bucket_kl(golden: TextGolden, rows: slice, logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """KL(golden ‖ softmax(logits)) at each position of ``rows``, over the TOP tokens and one bucket of all others.

    Merging tokens into a bucket can only lower the divergence. Each term is p·log(p/q) + q − p, never negative, so that
    rounding of the stored float32 values does not cancel against itself.
    """
    found = log_softmax(logits)
    log_q = np.take_along_axis(found, golden.ids[rows].astype(np.int64), axis=1)
    q_tail = np.maximum(1.0 - np.exp(log_q).sum(axis=1), 1e-30)
    log_p = golden.logprobs[rows].astype(np.float64)
    p_tail = np.maximum(golden.tail[rows].astype(np.float64), 1e-30)
    heads = _terms(log_p, log_q).sum(axis=1)
    tails: NDArray[np.float64] = _terms(np.log(p_tail), np.log(q_tail))
    return np.asarray(heads + tails)


def full_kl(log_p: NDArray[np.float64], log_q: NDArray[np.float64]) -> NDArray[np.float64]:
    """KL(p ‖ q) of each row over the whole vocabulary, from log probabilities."""
    return np.asarray(_terms(log_p, log_q).sum(axis=-1))


def _terms(log_p: NDArray[np.float64], log_q: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.exp(log_p)
    return np.asarray(p * (log_p - log_q) + np.exp(log_q) - p)
