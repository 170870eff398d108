"""The native engine as a function from tokens to logits, for tests and for tools/oracle.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from millstream.engine.config import Activations, KvType
from millstream.models.loader import build_native, load_model_file
from millstream.native import _core
from support.cores import THREADS

Tokens = Sequence[int] | NDArray[np.int32]


class Part(NamedTuple):
    """New tokens of the sequence in KV slot ``slot``, from ``position`` on; those before are in the cache."""

    slot: int
    position: int
    tokens: Tokens


class Engine:
    """A loaded model with room for ``sequences`` sequences of ``max_length`` tokens. Use it as a context manager.

    Every sequence owns fixed KV pages, so nothing has to be freed. ``chunk``: most tokens that one step takes.
    """

    def __init__(
        self,
        path: Path,
        *,
        sequences: int = 1,
        max_length: int = 512,
        chunk: int = 64,
        kv_type: KvType = "f16",
        activations: Activations = "int12",
    ) -> None:
        self.sequences = sequences
        self._chunk = chunk
        self._pages = -(-max_length // _core.BLOCK_SIZE)
        self._file = load_model_file(path)
        self.vocab_size = self._file.spec.vocab_size
        rows = max(chunk, sequences)
        self._model = build_native(
            self._file,
            kv_blocks=self._pages * sequences,
            max_tokens=rows,
            max_rows=rows,
            threads=THREADS,
            kv_type=kv_type,
            activations=activations,
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def logits(self, tokens: Tokens, *, first_row: int = 0, slot: int = 0) -> NDArray[np.float32]:
        """Logits [T - first_row, vocab] of one sequence from position ``first_row`` on.

        The sequence is run in chunks and stays in the KV pages of ``slot``.
        """
        ids = np.asarray(tokens, dtype=np.int32)
        parts = [Part(slot, first, ids[first : first + self._chunk]) for first in range(0, len(ids), self._chunk)]
        return np.concatenate([self.step([part], skip=max(first_row - part.position, 0)) for part in parts])

    def step(self, parts: Sequence[Part], *, skip: int = 0) -> NDArray[np.float32]:
        """One native step. Logits of all tokens of all parts, in their order, without the first ``skip``."""
        flat = np.concatenate([np.asarray(part.tokens, dtype=np.int32) for part in parts])
        starts = np.cumsum([0, *(len(part.tokens) for part in parts)], dtype=np.int32)
        positions = np.array([part.position for part in parts], dtype=np.int32)
        slots = np.array([part.slot for part in parts], dtype=np.int32)
        pages = np.add.outer(slots * self._pages, np.arange(self._pages)).astype(np.int32)
        rows = np.arange(min(skip, len(flat)), len(flat), dtype=np.int32)
        logits = np.empty((len(rows), self.vocab_size), dtype=np.float32)
        self._model.step(flat, starts, positions, pages, rows, _greedy(len(rows)), _out(len(rows)), logits)
        return logits

    def greedy(self, prompts: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[list[int]]:
        """Greedy continuations of several prompts, ``lengths[i]`` tokens each, decoded together in one batch."""
        outputs = [
            [int(self.logits(prompt, first_row=len(prompt) - 1, slot=slot)[0].argmax())]
            for slot, prompt in enumerate(prompts)
        ]
        for count in range(1, max(lengths)):
            open_slots = [slot for slot, length in enumerate(lengths) if length > count]
            parts = [Part(slot, len(prompts[slot]) + count - 1, [outputs[slot][-1]]) for slot in open_slots]
            for slot, row in zip(open_slots, self.step(parts), strict=True):
                outputs[slot].append(int(row.argmax()))
        return outputs


def _greedy(rows: int) -> _core.SamplingBatch:
    """Sampling parameters of ``rows`` greedy rows without any filter."""
    zeros: dict[str, Any] = {
        name: np.zeros(rows, dtype=dtype)
        for name, dtype in (
            ("temperature", np.float32),
            ("top_k", np.int32),
            ("min_p", np.float32),
            ("presence_penalty", np.float32),
            ("frequency_penalty", np.float32),
            ("seed", np.uint64),
            ("choice", np.uint32),
            ("position", np.uint32),
        )
    }
    none = np.empty(0, dtype=np.int32)
    return _core.SamplingBatch(
        **zeros,
        top_p=np.ones(rows, dtype=np.float32),
        repetition_penalty=np.ones(rows, dtype=np.float32),
        logprobs=np.full(rows, -1, dtype=np.int32),
        mask_rows=np.full(rows, -1, dtype=np.int32),
        masks=np.empty((0, 0), dtype=np.uint32),
        bias_starts=np.zeros(rows + 1, dtype=np.int32),
        bias_ids=none,
        bias_values=np.empty(0, dtype=np.float32),
        history_starts=np.zeros(rows + 1, dtype=np.int32),
        history_ids=none,
        history_counts=none,
    )


def _out(rows: int) -> _core.SampleOutput:
    return _core.SampleOutput(
        tokens=np.empty(rows, dtype=np.int32),
        logprobs=np.empty(rows, dtype=np.float32),
        top_ids=np.empty((rows, 1), dtype=np.int32),
        top_logprobs=np.empty((rows, 1), dtype=np.float32),
    )
