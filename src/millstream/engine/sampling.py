"""Sampling parameters of a step's rows as the flat arrays of the native core."""

from __future__ import annotations

from typing import NamedTuple

from millstream.engine.arrays import float32s, floats, int32s, integers
from millstream.engine.masks import StepMasks
from millstream.native import SamplingBatch
from millstream.scheduler.sequence import Sequence

_BANNED = float("-inf")


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
    def steady(self) -> bool:
        """Whether the rows after it have the same parameters but for their position."""
        sequence = self.sequence
        request = sequence.request
        return (
            sequence.constraint is None
            and sequence.counts is None
            and sequence.output_length >= request.min_tokens
            and not request.sampling.logit_bias
        )

    @property
    def bias(self) -> dict[int, float]:
        """Logit biases of the next token; stop tokens are banned while the answer is too short."""
        request = self.sequence.request
        if self.sequence.output_length + len(self.ahead) < request.min_tokens:
            return request.sampling.logit_bias | dict.fromkeys(request.stop_ids, _BANNED)
        return request.sampling.logit_bias


class SamplingArrays:
    """Sampling parameters of up to ``max_rows`` rows."""

    def __init__(self, max_rows: int) -> None:
        self._temperature = floats(max_rows)
        self._top_k = integers(max_rows)
        self._top_p = floats(max_rows)
        self._min_p = floats(max_rows)
        self._repetition = floats(max_rows)
        self._presence = floats(max_rows)
        self._frequency = floats(max_rows)
        self._seed = integers(max_rows, "Q")
        self._choice = integers(max_rows, "I")
        self.position = integers(max_rows, "I")
        """May be rewritten in place for steps whose rows are steady."""
        self._logprobs = integers(max_rows)
        self._bias_starts = integers(max_rows + 1)
        self._history_starts = integers(max_rows + 1)

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
            position=self.position[:rows],
            logprobs=self._logprobs[:rows],
            mask_rows=masks.of_rows[:rows],
            masks=masks.bits,
            bias_starts=self._bias_starts[: rows + 1],
            bias_ids=int32s(bias_ids),
            bias_values=float32s(bias_values),
            history_starts=self._history_starts[: rows + 1],
            history_ids=int32s(history_ids),
            history_counts=int32s(history_counts),
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
        self.position[row] = len(sequence.tokens) + len(ahead)
        self._logprobs[row] = -1 if params.logprobs is None else params.logprobs
