"""What the machine can do at best, so that a speed can be read as a share of it."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np

_LEAST_BYTES = 1 << 20


class Bandwidth(msgspec.Struct, frozen=True):
    """Bytes per second read from memory by ``threads`` threads: the best and the median pass."""

    best: float
    median: float
    threads: int
    buffer_bytes: int


def read_bandwidth(*, buffer_bytes: int, threads: int, seconds: float = 1.0) -> Bandwidth:
    """Measure how fast memory is read.

    Each thread takes the maximum of its part of one int32 array, again and again; numpy does that with vector
    instructions and without the GIL. The array should be as large as the weights, so that caches help as much as they
    help the engine. Where numpy is slower than the memory, the figure is a lower bound.
    """
    import numpy as np

    values = np.ones(max(buffer_bytes, threads * _LEAST_BYTES) // 4, np.int32)
    parts = np.array_split(values, threads)
    passes: list[float] = []
    with ThreadPoolExecutor(threads) as pool:
        end = time.perf_counter() + seconds
        while not passes or time.perf_counter() < end:
            begun = time.perf_counter()
            list(pool.map(_read, parts))
            passes.append(values.nbytes / (time.perf_counter() - begun))
    return Bandwidth(best=max(passes), median=statistics.median(passes), threads=threads, buffer_bytes=values.nbytes)


def _read(values: np.ndarray[tuple[int], np.dtype[np.int32]]) -> int:
    return int(values.max())
