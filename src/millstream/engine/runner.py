"""Turns the scheduler's chunks into the flat arrays of one native step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from millstream.engine.admission import MAX_LOGPROBS
from millstream.engine.masks import StepMasks
from millstream.engine.protocol import TokenAlternatives
from millstream.engine.sampling import SampledRow, SamplingArrays
from millstream.engine.scores import Scoring
from millstream.native import SampleOutput, SamplingBatch
from millstream.scheduler.scheduler import Chunk, Sampled
from millstream.scheduler.sequence import Sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.native import Model


class NativeRunner:
    """Executes steps on the native core. The arrays are allocated once and rewritten in place."""

    def __init__(
        self,
        model: Model,
        *,
        vocab_size: int,
        hidden_size: int,
        step_tokens: int,
        max_sequences: int,
        max_rows: int,
        max_blocks: int,
    ) -> None:
        """``max_rows``: rows that are sampled in one step at most."""
        self._model = model
        self._tokens = np.zeros(step_tokens, np.int32)
        self._starts = np.zeros(max_sequences + 1, np.int32)
        self._positions = np.zeros(max_sequences, np.int32)
        self._tables = _BlockTables(max_sequences, max_blocks)
        self._rows = np.zeros(max_rows, np.int32)
        self._sampling = SamplingArrays(max_rows)
        self._masks = StepMasks(max_rows, vocab_size, processors=model.threads)
        self._out_tokens = np.zeros(max_rows, np.int32)
        self._out_logprobs = np.zeros(max_rows, np.float32)
        self._top_ids = np.zeros((max_rows, MAX_LOGPROBS), np.int32)
        self._top_logprobs = np.zeros((max_rows, MAX_LOGPROBS), np.float32)
        self._hidden_size = hidden_size
        self._steady: _SteadyStep | None = None
        self._native_seconds = 0.0

    @property
    def native_seconds(self) -> float:
        return self._native_seconds

    @property
    def progress(self) -> int:
        return self._model.progress

    def execute(self, chunks: list[Chunk]) -> Sampled:
        """Run every chunk and sample after those that ask for it."""
        steady = self._steady
        if steady is None or not self._advance(chunks, steady):
            return self._execute_any(chunks)
        begun = time.perf_counter()
        self._model.step(*steady.arguments)
        self._native_seconds += time.perf_counter() - begun
        return self._sampled(steady.sequences)

    def _advance(self, chunks: list[Chunk], steady: _SteadyStep) -> bool:
        """Write what makes this step another than the steady one before it; False if more than that has changed."""
        if len(chunks) != len(steady.sequences):
            return False
        for index, chunk in enumerate(chunks):
            sequence = chunk.sequence
            if sequence is not steady.sequences[index] or chunk.count != 1 or not chunk.sample or chunk.score:
                return False
            self._tokens[index] = sequence.tokens[chunk.start]
            self._positions[index] = chunk.start
            self._sampling.position[index] = len(sequence.tokens)
            self._tables.write(index, sequence.blocks)
        return True

    def _execute_any(self, chunks: list[Chunk]) -> Sampled:
        self._steady = None
        total = self._place(chunks)
        sampling = [SampledRow(chunk.sequence, chunk.draft[:ahead]) for chunk in chunks for ahead in range(chunk.rows)]
        sequences = [each.sequence for each in sampling]
        rows = len(sampling)
        masked = self._masks.begin(sequences)
        batch = self._sampling.fill(sampling, self._masks)
        out = SampleOutput(
            tokens=self._out_tokens[:rows],
            logprobs=self._out_logprobs[:rows],
            top_ids=self._top_ids[:rows],
            top_logprobs=self._top_logprobs[:rows],
        )
        arguments = _StepArguments(
            self._tokens[:total],
            self._starts[: len(chunks) + 1],
            self._positions[: len(chunks)],
            self._tables.array[: len(chunks)],
            self._rows[:rows],
            None if masked else batch,
            None if masked else out,
        )
        hidden_rows = self._hidden_rows(chunks)
        hidden = None if hidden_rows is None else np.empty((len(hidden_rows), self._hidden_size), np.float32)
        scoring = Scoring(chunks) if any(chunk.score for chunk in chunks) else None
        begun = time.perf_counter()
        try:
            scores = scoring.arrays() if scoring is not None else None
            self._model.step(*arguments, hidden_rows=hidden_rows, hidden=hidden, scores=scores)
        finally:
            self._native_seconds += time.perf_counter() - begun
            self._masks.finish()
        if masked:
            begun = time.perf_counter()
            self._model.sample(batch, out)
            self._native_seconds += time.perf_counter() - begun
        elif total == rows == len(chunks) and scoring is None and all(each.steady for each in sampling):
            self._steady = _SteadyStep(sequences, arguments)
        sampled = self._sampled(sequences)
        if hidden is None and scoring is None:
            return sampled
        return Sampled(
            sampled.tokens,
            sampled.logprobs,
            hidden=[] if hidden is None else _split(hidden, [chunk.hidden for chunk in chunks if chunk.hidden]),
            scores=[] if scoring is None else scoring.results(),
        )

    def _sampled(self, sequences: list[Sequence]) -> Sampled:
        """What the core wrote for the sampled rows of these sequences."""
        return Sampled(
            self._out_tokens[: len(sequences)].tolist(),
            [self._alternatives(row, sequence) for row, sequence in enumerate(sequences)],
        )

    def _hidden_rows(self, chunks: list[Chunk]) -> NDArray[np.int32] | None:
        """Rows whose hidden states are wanted, in order; None if there are none."""
        ends = self._starts[1 : len(chunks) + 1]
        wanted = [
            np.arange(end - chunk.hidden, end, dtype=np.int32)
            for chunk, end in zip(chunks, ends, strict=True)
            if chunk.hidden
        ]
        return np.concatenate(wanted) if wanted else None

    def _place(self, chunks: list[Chunk]) -> int:
        """Write tokens, positions and block tables; returns the number of tokens."""
        at = row = 0
        for index, chunk in enumerate(chunks):
            sequence = chunk.sequence
            end = at + chunk.count
            if chunk.count == 1:
                self._tokens[at] = sequence.tokens[chunk.start]
            else:
                self._tokens[at:end] = chunk.tokens
            self._positions[index] = chunk.start
            self._tables.write(index, sequence.blocks)
            for sampled in range(end - chunk.rows, end):
                self._rows[row] = sampled
                row += 1
            at = end
            self._starts[index + 1] = at
        return at

    def _alternatives(self, row: int, sequence: Sequence) -> TokenAlternatives | None:
        count = sequence.request.sampling.logprobs
        if count is None:
            return None
        return TokenAlternatives(
            logprob=float(self._out_logprobs[row]),
            top_ids=self._top_ids[row, :count].tolist(),
            top_logprobs=self._top_logprobs[row, :count].tolist(),
        )


class _StepArguments(NamedTuple):
    """The leading arguments of `Model.step`."""

    tokens: NDArray[np.int32]
    seq_starts: NDArray[np.int32]
    seq_positions: NDArray[np.int32]
    block_tables: NDArray[np.int32]
    sample_rows: NDArray[np.int32]
    sampling: SamplingBatch | None
    out: SampleOutput | None


class _SteadyStep(NamedTuple):
    """A step in which each of some sequences decoded one token. Most steps follow one of the same sequences: then the
    same arrays, with other tokens and positions in them, are the next step's arguments."""

    sequences: list[Sequence]
    arguments: _StepArguments


class _BlockTables:
    """Page numbers of the sequences of a step, a row each, padded with -1; only what has changed is written."""

    def __init__(self, rows: int, width: int) -> None:
        self.array = np.full((rows, width), -1, np.int32)
        self._lists: list[list[int]] = [[] for _ in range(rows)]
        self._lengths = [0] * rows

    def write(self, row: int, blocks: list[int]) -> None:
        """A sequence's list of blocks only grows; another one is another list."""
        length, count = self._lengths[row], len(blocks)
        same = self._lists[row] is blocks
        if same and length == count:
            return
        if not same:
            self.array[row, count:length] = -1
            self._lists[row] = blocks
            length = 0
        self.array[row, length:count] = blocks[length:]
        self._lengths[row] = count


def _split(rows: NDArray[np.float32], counts: list[int]) -> list[NDArray[np.float32]]:
    """Consecutive runs of rows."""
    return np.split(rows, np.cumsum(counts)[:-1]) if counts else []
