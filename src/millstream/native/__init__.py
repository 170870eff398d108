"""The native core. Importing this loads the compiled module; only the engine process does."""

from millstream.native._core import (
    BLOCK_SIZE,
    Model,
    SampleOutput,
    SamplingBatch,
    TokenScores,
    active_isa,
    default_threads,
    dequantize,
    isa_levels,
    matmul,
    philox,
    sample,
    strings_end,
)

__all__ = [
    "BLOCK_SIZE",
    "Model",
    "SampleOutput",
    "SamplingBatch",
    "TokenScores",
    "active_isa",
    "default_threads",
    "dequantize",
    "isa_levels",
    "matmul",
    "philox",
    "sample",
    "strings_end",
]
