"""Settings of an engine process; they cross the process boundary as one JSON argument."""

from __future__ import annotations

from typing import Literal

import msgspec

from millstream.scheduler.drafts import most_rows

KvType = Literal["f16", "int8"]
Activations = Literal["int12", "int8"]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What to load and how large everything may grow.

    ``context_length`` None: what the model was made for. ``kv_bytes`` None: enough for one full context and at least
    512 MiB, within half of the memory that the weights leave; a KV cache smaller than the context shortens the context.
    ``memory_bytes``: what the engine may take in all; None: what is free.
    ``kv_type``: how keys and values are kept; int8 takes about half of the memory and changes the results a little.
    ``activations``: the integers that products with quantised weights take; int8 is faster and less exact.
    ``threads`` 0: all processors of the affinity mask.
    """

    model_path: str
    model_name: str
    context_length: int | None = None
    kv_bytes: int | None = None
    memory_bytes: int | None = None
    kv_type: KvType = "f16"
    activations: Activations = "int12"
    threads: int = 0
    step_tokens: int = 256
    max_sequences: int = 64
    max_waiting: int = 256
    prefix_cache: bool = True

    @property
    def max_rows(self) -> int:
        """Rows that a step samples at most."""
        return most_rows(self.max_sequences)
