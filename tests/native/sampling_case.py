"""Batches for the sampler and the same rules written plainly in numpy, in float64 and with a full sort."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from millstream.native import _core

TOP_WIDTH = 20


@dataclass(frozen=True)
class Row:
    """Sampling parameters of one row; the defaults are neutral."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    choice: int = 0
    position: int = 0
    logprobs: int = -1
    bias: dict[int, float] = field(default_factory=dict)
    history: dict[int, int] = field(default_factory=dict)
    allowed: frozenset[int] | None = None


@dataclass(frozen=True)
class Result:
    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]


def mask_words(allowed: frozenset[int], vocab: int) -> NDArray[np.uint32]:
    """Allowed tokens as bits: bit t % 32 of word t / 32."""
    words = np.zeros((vocab + 31) // 32, np.uint32)
    for token in allowed:
        words[token // 32] |= np.uint32(1 << (token % 32))
    return words


def _csr(lists: list[dict[int, float]]) -> tuple[NDArray[np.int32], NDArray[np.int32], list[float]]:
    starts = np.cumsum([0, *(len(entries) for entries in lists)]).astype(np.int32)
    ids = np.array([token for entries in lists for token in entries], np.int32)
    return starts, ids, [value for entries in lists for value in entries.values()]


def arrays(rows: list[Row], vocab: int) -> dict[str, NDArray[np.generic]]:
    """Keyword arguments of `SamplingBatch`."""
    masked = [row.allowed for row in rows if row.allowed is not None]
    mask_rows = np.cumsum([row.allowed is not None for row in rows], dtype=np.int32) - 1
    bias_starts, bias_ids, bias_values = _csr([row.bias for row in rows])
    history_starts, history_ids, history_counts = _csr([dict(row.history) for row in rows])
    return {
        **{
            name: np.array([getattr(row, name) for row in rows], np.float32)
            for name in (
                "temperature",
                "top_p",
                "min_p",
                "repetition_penalty",
                "presence_penalty",
                "frequency_penalty",
            )
        },
        "top_k": np.array([row.top_k for row in rows], np.int32),
        "logprobs": np.array([row.logprobs for row in rows], np.int32),
        "seed": np.array([row.seed for row in rows], np.uint64),
        "choice": np.array([row.choice for row in rows], np.uint32),
        "position": np.array([row.position for row in rows], np.uint32),
        "mask_rows": np.where([row.allowed is not None for row in rows], mask_rows, -1).astype(np.int32),
        "masks": np.array([mask_words(allowed, vocab) for allowed in masked], np.uint32).reshape(
            len(masked), (vocab + 31) // 32
        ),
        "bias_starts": bias_starts,
        "bias_ids": bias_ids,
        "bias_values": np.array(bias_values, np.float32),
        "history_starts": history_starts,
        "history_ids": history_ids,
        "history_counts": np.array(history_counts, np.int32),
    }


def output(rows: int, width: int = TOP_WIDTH) -> tuple[Result, _core.SampleOutput]:
    """Arrays filled with a value that the sampler never writes, and the output object over them."""
    result = Result(
        np.full(rows, -7, np.int32),
        np.full(rows, 7, np.float32),
        np.full((rows, width), -7, np.int32),
        np.full((rows, width), 7, np.float32),
    )
    return result, _core.SampleOutput(**vars(result))


def sample(logits: NDArray[np.float32], rows: list[Row]) -> Result:
    """Sample every row of logits [R, vocab]."""
    result, out = output(len(rows))
    _core.sample(logits, _core.SamplingBatch(**arrays(rows, logits.shape[1])), out)
    return result


def sample_one(logits: NDArray[np.float32], row: Row) -> int:
    """The token sampled from logits [vocab]."""
    return int(sample(logits[None, :], [row]).tokens[0])


def adjusted(logits: NDArray[np.float32], row: Row) -> NDArray[np.float32]:
    """Logits after bias, penalties and mask, in float32 as the sampler computes them."""
    x = logits.astype(np.float32).copy()
    with np.errstate(all="ignore"):
        for token, value in row.bias.items():
            x[token] += np.float32(value)
        for token, count in row.history.items():
            penalty = np.float32(row.repetition_penalty)
            x[token] = x[token] / penalty if x[token] > 0 else x[token] * penalty
            if count > 0:
                x[token] -= np.float32(row.presence_penalty) + np.float32(row.frequency_penalty) * np.float32(count)
    if row.allowed is not None:
        x[[token not in row.allowed for token in range(len(x))]] = -np.inf
    return np.where(np.isnan(x), -np.inf, x).astype(np.float32)


def probabilities(logits: NDArray[np.float32], row: Row) -> NDArray[np.float64]:
    """The distribution that the row's token is drawn from: all weight on one token if greedy."""
    x = adjusted(logits, row)
    if row.temperature < 1e-5:
        return (np.arange(len(x)) == np.argmax(x)).astype(np.float64)
    weights = np.exp((x.astype(np.float64) - x.max()) / row.temperature)
    weights[weights < min(row.min_p, 1.0)] = 0.0
    order = np.lexsort((np.arange(len(x)), -x))
    if row.top_k > 0:
        weights[order[row.top_k :]] = 0.0
    if row.top_p < 1.0:
        running = np.cumsum(weights[order])
        kept = 1 + int(np.searchsorted(running, row.top_p * running[-1]))
        weights[order[kept:]] = 0.0
    return weights / weights.sum()


def expected(logits: NDArray[np.float32], row: Row) -> tuple[int, float]:
    """The token that the row's random number selects, and how close that number is to the edge of its interval."""
    running = np.cumsum(probabilities(logits, row))
    uniform = _core.philox(row.seed, row.choice, row.position)
    edges = np.concatenate([[0.0], running])
    return int(np.searchsorted(running, uniform, side="right")), float(np.abs(edges[:-1] - uniform).min())
