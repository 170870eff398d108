"""Turns the scheduler's chunks into the flat arrays of one native step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from millstream.engine.admission import MAX_LOGPROBS
from millstream.engine.arrays import float_rows, floats, int32s, int_rows, integers, repeated
from millstream.engine.masks import StepMasks
from millstream.engine.protocol import TokenAlternatives
from millstream.engine.sampling import SampledRow, SamplingArrays
from millstream.native import SampleOutput, SamplingBatch
from millstream.scheduler.scheduler import Chunk, Sampled
from millstream.scheduler.sequence import Sequence

if TYPE_CHECKING:
    from millstream.engine.hidden import HiddenRows
    from millstream.engine.scores import Scoring
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
        self._tokens = integers(step_tokens)
        self._starts = integers(max_sequences + 1)
        self._positions = integers(max_sequences)
        self._tables = _BlockTables(max_sequences, max_blocks)
        self._rows = integers(max_rows)
        self._sampling = SamplingArrays(max_rows)
        self._masks = StepMasks(max_rows, vocab_size, processors=model.threads)
        self._out_tokens = integers(max_rows)
        self._out_logprobs = floats(max_rows)
        self._top_ids = integers(max_rows * MAX_LOGPROBS)
        self._top_logprobs = floats(max_rows * MAX_LOGPROBS)
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
        hidden, scoring = self._hidden(chunks), _scoring(chunks)
        sampling = [SampledRow(chunk.sequence, chunk.draft[:ahead]) for chunk in chunks for ahead in range(chunk.rows)]
        sequences = [each.sequence for each in sampling]
        rows = len(sampling)
        masked = self._masks.begin(sequences)
        try:
            batch, out = self._sampling.fill(sampling, self._masks), self._output(rows)
            arguments = _StepArguments(
                self._tokens[:total],
                self._starts[: len(chunks) + 1],
                self._positions[: len(chunks)],
                self._tables.array[: len(chunks)],
                self._rows[:rows],
                None if masked else batch,
                None if masked else out,
            )
            scores = scoring.arrays() if scoring is not None else None
            begun = time.perf_counter()
            self._model.step(
                *arguments,
                hidden_rows=None if hidden is None else hidden.rows,
                hidden=None if hidden is None else hidden.states,
                scores=scores,
            )
            self._native_seconds += time.perf_counter() - begun
        finally:  # whatever happened, nobody may still write masks when the next step begins
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
            hidden=[] if hidden is None else hidden.results(),
            scores=[] if scoring is None else scoring.results(),
        )

    def _output(self, rows: int) -> SampleOutput:
        """Where the core writes what it samples for so many rows."""
        return SampleOutput(
            tokens=self._out_tokens[:rows],
            logprobs=self._out_logprobs[:rows],
            top_ids=int_rows(self._top_ids, MAX_LOGPROBS)[:rows],
            top_logprobs=float_rows(self._top_logprobs, MAX_LOGPROBS)[:rows],
        )

    def _sampled(self, sequences: list[Sequence]) -> Sampled:
        """What the core wrote for the sampled rows of these sequences."""
        return Sampled(
            self._out_tokens[: len(sequences)].tolist(),
            [self._alternatives(row, sequence) for row, sequence in enumerate(sequences)],
        )

    def _hidden(self, chunks: list[Chunk]) -> HiddenRows | None:
        """Where the hidden states that these chunks want go; None if they want none, as in most engines."""
        if not any(chunk.hidden for chunk in chunks):
            return None
        from millstream.engine.hidden import HiddenRows

        return HiddenRows(chunks, self._hidden_size)

    def _place(self, chunks: list[Chunk]) -> int:
        """Write tokens, positions and block tables; returns the number of tokens."""
        at = row = 0
        for index, chunk in enumerate(chunks):
            sequence = chunk.sequence
            end = at + chunk.count
            if chunk.count == 1:
                self._tokens[at] = sequence.tokens[chunk.start]
            else:
                self._tokens[at:end] = int32s(chunk.tokens)
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
        begin = row * MAX_LOGPROBS
        return TokenAlternatives(
            logprob=self._out_logprobs[row],
            top_ids=list(self._top_ids[begin : begin + count]),
            top_logprobs=list(self._top_logprobs[begin : begin + count]),
        )


class _StepArguments(NamedTuple):
    """The leading arguments of `Model.step`."""

    tokens: memoryview[int]
    seq_starts: memoryview[int]
    seq_positions: memoryview[int]
    block_tables: memoryview[int]
    sample_rows: memoryview[int]
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
        self._width = width
        self._items = repeated(-1, rows * width)
        self.array = int_rows(self._items, width)
        self._lists: list[list[int]] = [[] for _ in range(rows)]
        self._lengths = [0] * rows

    def write(self, row: int, blocks: list[int]) -> None:
        """A sequence's list of blocks only grows; another one is another list. Raises ValueError if it is too long:
        the row ends where the next begins."""
        length, count = self._lengths[row], len(blocks)
        same = self._lists[row] is blocks
        if same and length == count:
            return
        if count > self._width:
            raise ValueError(f"a sequence needs {count} blocks, but the context has {self._width}")
        begin = row * self._width
        if not same:
            if count < length:
                self._items[begin + count : begin + length] = repeated(-1, length - count)
            self._lists[row] = blocks
            length = 0
        self._items[begin + length : begin + count] = int32s(blocks[length:])
        self._lengths[row] = count


def _scoring(chunks: list[Chunk]) -> Scoring | None:
    """Where the scores that these chunks want go; None if they want none, as in most engines."""
    if not any(chunk.score for chunk in chunks):
        return None
    from millstream.engine.scores import Scoring

    return Scoring(chunks)
