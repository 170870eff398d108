"""Turns the scheduler's chunks into the flat arrays of one native step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from millstream.engine.admission import MAX_LOGPROBS
from millstream.engine.masks import StepMasks
from millstream.engine.protocol import TokenAlternatives
from millstream.engine.scores import Scoring
from millstream.native import SampleOutput, SamplingBatch
from millstream.scheduler.scheduler import Chunk, Sampled
from millstream.scheduler.sequence import Sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.native import Model

_BANNED = float("-inf")
_NO_ROWS = np.empty(0, np.int32)


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
        self._tables = np.full((max_sequences, max_blocks), -1, np.int32)
        self._rows = np.zeros(max_rows, np.int32)
        self._sampling = _SamplingArrays(max_rows)
        self._masks = StepMasks(max_rows, vocab_size, processors=model.threads)
        self._out_tokens = np.zeros(max_rows, np.int32)
        self._out_logprobs = np.zeros(max_rows, np.float32)
        self._top_ids = np.zeros((max_rows, MAX_LOGPROBS), np.int32)
        self._top_logprobs = np.zeros((max_rows, MAX_LOGPROBS), np.float32)
        self._hidden_size = hidden_size
        self._native_seconds = 0.0

    @property
    def native_seconds(self) -> float:
        return self._native_seconds

    def execute(self, chunks: list[Chunk]) -> Sampled:
        """Run every chunk and sample after those that ask for it."""
        total = self._place(chunks)
        sampling = [SampledRow(chunk.sequence, chunk.draft[:ahead]) for chunk in chunks for ahead in range(chunk.rows)]
        rows = len(sampling)
        masked = self._masks.begin([each.sequence for each in sampling])
        batch = self._sampling.fill(sampling, self._masks)
        out = SampleOutput(
            tokens=self._out_tokens[:rows],
            logprobs=self._out_logprobs[:rows],
            top_ids=self._top_ids[:rows],
            top_logprobs=self._top_logprobs[:rows],
        )
        widest = max(len(chunk.sequence.blocks) for chunk in chunks)
        tables = np.ascontiguousarray(self._tables[: len(chunks), :widest])
        hidden_rows = self._hidden_rows(chunks)
        hidden = np.empty((len(hidden_rows), self._hidden_size), np.float32)
        scoring = Scoring(chunks) if any(chunk.score for chunk in chunks) else None
        try:
            with self._measured():
                self._model.step(
                    self._tokens[:total],
                    self._starts[: len(chunks) + 1],
                    self._positions[: len(chunks)],
                    tables,
                    self._rows[:rows],
                    None if masked else batch,
                    None if masked else out,
                    hidden_rows=hidden_rows,
                    hidden=hidden,
                    scores=scoring.arrays() if scoring is not None else None,
                )
        finally:
            self._masks.finish()
        if masked:
            with self._measured():
                self._model.sample(batch, out)
        return Sampled(
            tokens=self._out_tokens[:rows].tolist(),
            logprobs=[self._alternatives(row, each.sequence) for row, each in enumerate(sampling)],
            hidden=_split(hidden, [chunk.hidden for chunk in chunks if chunk.hidden]),
            scores=scoring.results() if scoring is not None else [],
        )

    @contextmanager
    def _measured(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self._native_seconds += time.perf_counter() - begun

    def _hidden_rows(self, chunks: list[Chunk]) -> NDArray[np.int32]:
        """Rows whose hidden states are wanted, in order."""
        ends = self._starts[1 : len(chunks) + 1]
        wanted = [
            np.arange(end - chunk.hidden, end, dtype=np.int32)
            for chunk, end in zip(chunks, ends, strict=True)
            if chunk.hidden
        ]
        return np.concatenate(wanted) if wanted else _NO_ROWS

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
            self._tables[index, : len(sequence.blocks)] = sequence.blocks
            self._tables[index, len(sequence.blocks) :] = -1
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


class SampledRow(NamedTuple):
    """A row whose next token is drawn: that of a sequence after its tokens and some more, ``ahead``."""

    sequence: Sequence
    ahead: tuple[int, ...] = ()

    @property
    def counts(self) -> dict[int, int] | None:
        """As `Sequence.counts`, with what is ahead."""
        counts = self.sequence.counts
        if counts is None or not self.ahead:
            return counts
        counts = dict(counts)
        for token in self.ahead:
            counts[token] = counts.get(token, 0) + 1
        return counts

    @property
    def bias(self) -> dict[int, float]:
        """Logit biases of the next token; stop tokens are banned while the answer is too short."""
        request = self.sequence.request
        if self.sequence.output_length + len(self.ahead) < request.min_tokens:
            return request.sampling.logit_bias | dict.fromkeys(request.stop_ids, _BANNED)
        return request.sampling.logit_bias


class _SamplingArrays:
    """Sampling parameters of up to ``max_rows`` rows."""

    def __init__(self, max_rows: int) -> None:
        self._temperature = np.zeros(max_rows, np.float32)
        self._top_k = np.zeros(max_rows, np.int32)
        self._top_p = np.zeros(max_rows, np.float32)
        self._min_p = np.zeros(max_rows, np.float32)
        self._repetition = np.zeros(max_rows, np.float32)
        self._presence = np.zeros(max_rows, np.float32)
        self._frequency = np.zeros(max_rows, np.float32)
        self._seed = np.zeros(max_rows, np.uint64)
        self._choice = np.zeros(max_rows, np.uint32)
        self._position = np.zeros(max_rows, np.uint32)
        self._logprobs = np.zeros(max_rows, np.int32)
        self._bias_starts = np.zeros(max_rows + 1, np.int32)
        self._history_starts = np.zeros(max_rows + 1, np.int32)

    def fill(self, sampled: list[SampledRow], masks: StepMasks) -> SamplingBatch:
        """The batch of these rows."""
        bias_ids: list[int] = []
        bias_values: list[float] = []
        history_ids: list[int] = []
        history_counts: list[int] = []
        for row, each in enumerate(sampled):
            self._set_row(row, each)
            bias = each.bias
            if bias:
                bias_ids += bias.keys()
                bias_values += bias.values()
            if (counts := each.counts) is not None:
                history_ids += counts.keys()
                history_counts += counts.values()
            self._bias_starts[row + 1] = len(bias_ids)
            self._history_starts[row + 1] = len(history_ids)
        rows = len(sampled)
        return SamplingBatch(
            temperature=self._temperature[:rows],
            top_k=self._top_k[:rows],
            top_p=self._top_p[:rows],
            min_p=self._min_p[:rows],
            repetition_penalty=self._repetition[:rows],
            presence_penalty=self._presence[:rows],
            frequency_penalty=self._frequency[:rows],
            seed=self._seed[:rows],
            choice=self._choice[:rows],
            position=self._position[:rows],
            logprobs=self._logprobs[:rows],
            mask_rows=masks.of_rows[:rows],
            masks=masks.bits,
            bias_starts=self._bias_starts[: rows + 1],
            bias_ids=np.array(bias_ids, np.int32),
            bias_values=np.array(bias_values, np.float32),
            history_starts=self._history_starts[: rows + 1],
            history_ids=np.array(history_ids, np.int32),
            history_counts=np.array(history_counts, np.int32),
        )

    def _set_row(self, row: int, each: SampledRow) -> None:
        sequence, ahead = each
        params = sequence.request.sampling
        self._temperature[row] = params.temperature
        self._top_k[row] = params.top_k
        self._top_p[row] = params.top_p
        self._min_p[row] = params.min_p
        self._repetition[row] = params.repetition_penalty
        self._presence[row] = params.presence_penalty
        self._frequency[row] = params.frequency_penalty
        self._seed[row] = params.seed
        self._choice[row] = sequence.request.choice
        self._position[row] = len(sequence.tokens) + len(ahead)
        self._logprobs[row] = -1 if params.logprobs is None else params.logprobs


def _split(rows: NDArray[np.float32], counts: list[int]) -> list[NDArray[np.float32]]:
    """Consecutive runs of rows."""
    return np.split(rows, np.cumsum(counts)[:-1]) if counts else []
