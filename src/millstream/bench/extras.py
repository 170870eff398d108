"""What a run measures besides a plan: the start of a server, the share of Python, structured output, the memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millstream.bench.engine import Overhead, measure_overhead
from millstream.bench.limits import Bandwidth, read_bandwidth
from millstream.bench.server import ServerStart, measure_server_start
from millstream.bench.structured import CONTEXT as STRUCTURED_CONTEXT
from millstream.bench.structured import STREAMS, Structured, measure_structured
from millstream.engine.core import EngineCore
from millstream.engine.protocol import EngineInfo

OVERHEAD_SEQUENCES = 16
OVERHEAD_CONTEXT = 256

MOST_SEQUENCES = max(OVERHEAD_SEQUENCES, STREAMS)


def kv_tokens(block_size: int) -> int:
    """Positions that these measurements need in whole blocks, with a block to spare for each sequence."""
    overhead = OVERHEAD_SEQUENCES * (OVERHEAD_CONTEXT + block_size)
    return max(overhead, STREAMS * (STRUCTURED_CONTEXT + block_size))


class Extras:
    """Measures what is wanted of one model, each at its time; tells ``on_stage`` what it measures."""

    def __init__(self, path: Path, info: EngineInfo, on_stage: Callable[[str], None]) -> None:
        self._path = path
        self._info = info
        self._on_stage = on_stage

    def server(self, *, threads: int) -> ServerStart:
        """Beside an engine that has loaded the file, and does nothing else."""
        self._on_stage("start of a server")
        return measure_server_start(self._path, threads=threads)

    def overhead(self, core: EngineCore) -> Overhead | None:
        """None: the model's context is too short for it."""
        if self._info.context_length < OVERHEAD_CONTEXT:
            return None
        self._on_stage("share of Python")
        vocab = self._info.vocab_size
        prompts = [[(97 * row + 31 * at) % vocab for at in range(128)] for row in range(OVERHEAD_SEQUENCES)]
        return measure_overhead(core, prompts)

    def structured(self, core: EngineCore, *, rounds: int) -> Structured | None:
        """None: the model's context is too short for it."""
        if self._info.context_length < STRUCTURED_CONTEXT:
            return None
        self._on_stage("structured output")
        return measure_structured(core, self._path, rounds=rounds)

    def bandwidth(self) -> Bandwidth:
        """Once the engine is gone: its weights would be in the way."""
        self._on_stage("memory bandwidth")
        return read_bandwidth(buffer_bytes=self._info.weight_bytes, threads=self._info.threads)
