"""Types of the native core. Arrays are C-contiguous, of the item type that their name says, numpy's or any other with
the buffer protocol. They are taken as they are, never copied; every size is checked, errors are ValueError."""

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from millstream.models.spec import ModelSpec

Int32s = NDArray[np.int32] | memoryview[int]
UInt32s = NDArray[np.uint32] | memoryview[int]
UInt64s = NDArray[np.uint64] | memoryview[int]
Float32s = NDArray[np.float32] | memoryview[float]

BLOCK_SIZE: int
"""Positions per KV page."""

def isa_levels() -> list[str]:
    """Levels this build has and this machine can run, slowest first: ``generic``, ``avx2``, …"""

def active_isa() -> str:
    """The level in use: the best one, or the one ``MILLSTREAM_ISA`` names (RuntimeError if it cannot run)."""

def default_threads() -> int:
    """Processors in this process's affinity mask."""

def strings_end(data: Any, at: int, count: int) -> int | None:
    """Where ``count`` strings of a GGUF file end that begin ``at`` this byte of a readable buffer; None: not in it."""

def dequantize(ggml_type: int, rows: int, cols: int, data: Any) -> NDArray[np.float32]:
    """Values of a GGUF tensor after repacking into the internal format, shape [rows, cols]; for tests and tools."""

def matmul(
    ggml_type: int,
    rows: int,
    cols: int,
    data: Any,
    x: NDArray[np.float32],
    activations: Literal["int12", "int8"] = "int12",
) -> NDArray[np.float32]:
    """x [m, cols] times the transposed tensor: [m, rows], through the engine's own quantised path; for tests."""

class Model:
    """Weights, KV pages and the step program of one model."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        kv_blocks: int,
        max_tokens: int,
        max_rows: int,
        threads: int = 0,
        kv_type: Literal["f16", "int8"] = "f16",
        activations: Literal["int12", "int8"] = "int12",
    ) -> None:
        """Allocate for at most ``max_tokens`` tokens and ``max_rows`` sampled rows a step (``threads`` 0: all).

        ``kv_type``: keys and values as f16, or as 8-bit integers with a scale for each 32 of a head.
        ``activations``: the integers, with a scale for each 32, that products with quantised weights take."""

    def load(self, tensors: Iterable[tuple[int, str, int, int, int, Any]], *, mapped: bool = False) -> None:
        """Repack all tensors of a model, once: (layer, slot, ggml type, rows, columns, bytes), where vectors have one
        row and bytes is any readable buffer of exactly the right size.

        ``mapped``: the buffers are pages of a file that is mapped for reading; they are given back to the system as
        they are read, whole pages at a time. In other memory that would lose what is there and beside it.

        Raises:
            ValueError: names the first slot that does not exist, has a wrong shape or type, or is missing.
        """

    @property
    def threads(self) -> int: ...
    @property
    def progress(self) -> int:
        """Another number whenever a step has got on since the last look; to be asked from any thread."""

    @property
    def weight_bytes(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...
    def step(
        self,
        tokens: Int32s,
        seq_starts: Int32s,
        seq_positions: Int32s,
        block_tables: Int32s,
        sample_rows: Int32s,
        sampling: SamplingBatch | None,
        out: SampleOutput | None,
        logits: Float32s | None = None,
        hidden_rows: Int32s | None = None,
        hidden: Float32s | None = None,
        scores: TokenScores | None = None,
    ) -> None:
        """Run one step without the GIL.

        tokens [T]: the new tokens of all sequences, one after another. seq_starts [S + 1]: where each begins; the last
        is T. seq_positions [S]: position of each sequence's first new token; those before it are in the KV cache.
        block_tables [S, B]: page numbers, padded with -1. sample_rows [R]: rows (indices into tokens) whose logits are
        wanted; row r is sampled with row r of ``sampling`` into row r of ``out``. logits [R, vocab]: filled if given.
        Without ``sampling`` and ``out`` these logits are kept for `sample`.

        hidden_rows [H], at most T of them: rows whose final-normed hidden states go to hidden [H, hidden size]; they
        are what the output head reads, before it quantises them. Both are given or neither.

        scores: rows whose next token is known, at most T of them; nothing is sampled there. ``max_rows`` bounds the
        logits that exist at a time, not the number of these rows.
        """

    def sample(self, sampling: SamplingBatch, out: SampleOutput) -> None:
        """Sample, without the GIL, the rows [R] that the last step kept logits of: the tokens that the step itself
        would have given. Once: ValueError if nothing is kept, or another number of rows."""

class SamplingBatch:
    """Per-row sampling parameters as flat arrays; the core keeps references, so rows can be rewritten in place.

    Lists per row are in CSR form: row r owns entries starts[r] to starts[r + 1]. ``bias``: logit biases (-inf bans).
    ``history``: distinct token ids seen by the row; ``history_counts`` = occurrences in the output (0: prompt only).
    ``mask_rows`` [R]: row of ``masks`` [M, ceil(vocab / 32)] uint32 that holds the allowed tokens (bit t % 32 of word
    t / 32), or -1. ``logprobs`` [R]: -1 none, 0 the sampled token, k > 0 also the k best.
    ``position`` [R]: index of the token to be sampled within its sequence (prompt included), for the random generator.
    """

    def __init__(
        self,
        *,
        temperature: Float32s,
        top_k: Int32s,
        top_p: Float32s,
        min_p: Float32s,
        repetition_penalty: Float32s,
        presence_penalty: Float32s,
        frequency_penalty: Float32s,
        seed: UInt64s,
        choice: UInt32s,
        position: UInt32s,
        logprobs: Int32s,
        mask_rows: Int32s,
        masks: UInt32s,
        bias_starts: Int32s,
        bias_ids: Int32s,
        bias_values: Float32s,
        history_starts: Int32s,
        history_ids: Int32s,
        history_counts: Int32s,
    ) -> None: ...

class SampleOutput:
    """Where a step writes: tokens [R], logprobs [R], top_ids [R, K], top_logprobs [R, K] with K >= the asked number."""

    def __init__(
        self,
        *,
        tokens: Int32s,
        logprobs: Float32s,
        top_ids: Int32s,
        top_logprobs: Float32s,
    ) -> None: ...

class TokenScores:
    """Rows of a step whose next token is known: which rows [N] and which tokens, ``targets`` [N]; and where the step
    writes what the model gave those tokens, logprobs [N], and the best, top_ids and top_logprobs [N, K] (K may be 0;
    places that the vocabulary cannot fill hold id -1 and -inf). The same bits that a sampled row reports."""

    def __init__(
        self,
        *,
        rows: Int32s,
        targets: Int32s,
        logprobs: Float32s,
        top_ids: Int32s,
        top_logprobs: Float32s,
    ) -> None: ...

def sample(logits: Float32s, sampling: SamplingBatch, out: SampleOutput) -> None:
    """Sample every row of logits [R, vocab]; the same code that a step runs; for tests."""

def philox(seed: int, choice: int, position: int) -> float:
    """The uniform number in [0, 1) that the sampler draws for (seed, choice, position)."""
