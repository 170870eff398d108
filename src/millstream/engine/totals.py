"""Counts of the engine over all of its processes: each begins at zero, and what a server counts never goes back."""

from __future__ import annotations

import msgspec

from millstream.engine.protocol import EngineStats

COUNTERS = (
    "steps",
    "prompt_tokens",
    "generated_tokens",
    "cached_tokens",
    "preemptions",
    "draft_tokens",
    "accepted_tokens",
    "forced_tokens",
    "grammars_compiled",
    "grammars_reused",
    "native_seconds",
    "step_seconds",
)
"""Fields of `EngineStats` that only grow while a process lives."""


class Totals:
    """Learns what the present process says, and that it has ended.

    What a process counted after it last told is not known. It tells at least once a second while it works.
    """

    def __init__(self) -> None:
        self._ended = EngineStats()
        self._present = EngineStats()

    def told(self, stats: EngineStats) -> None:
        """The present process told its own counts."""
        self._present = stats

    def ended(self) -> None:
        """The present process is gone."""
        self._ended = self.counts
        self._present = EngineStats()

    @property
    def counts(self) -> EngineStats:
        """The last that was told, with the counts of all processes."""
        sums = {name: getattr(self._ended, name) + getattr(self._present, name) for name in COUNTERS}
        return msgspec.structs.replace(self._present, **sums)
