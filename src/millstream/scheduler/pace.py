"""How much of prompts a step may hold so that nobody who comes during it waits long. Pure: durations are passed in.

A long prompt is computed in chunks, and a request that arrives meanwhile waits for the end of the chunk that runs.
Prompt tokens grow dearer with the context that they look back on, so a fixed number of them is no bound. Chunks are
therefore measured in units: one is what a prompt token without context costs.

Whoever arrives has a prompt that costs units too, so a bound in units keeps the wait in proportion to what the answer
would take on an idle machine, fast or slow. Where sequences decode, each step is one token of theirs: there the units
are steered by what the last steps took, down at once, up by a factor of two per step at most.
"""

from __future__ import annotations

import msgspec

LEAST_UNITS = 32
"""Below this the weights would be read too often for the tokens that they serve."""

LEAST_CHUNK = 16
"""Tokens of a lone prompt in one step, whatever they cost: one tile of rows, which shares the reading of keys and
values that makes them dear. Chunks of 16 to 256 tokens take the same time per token, smaller ones more."""


class TokenCost(msgspec.Struct, frozen=True, kw_only=True):
    """What computing one token costs, in units, by its position: attention over all earlier positions, and in some
    layers over the last ``window`` only."""

    per_position: float = 0.0
    per_windowed: float = 0.0
    window: int = 0

    def at(self, position: int) -> float:
        """Units of the token at ``position``."""
        return 1.0 + self.per_position * position + self.per_windowed * min(position, self.window)


class Pace:
    """``step_seconds``: what a step should take; ``most``: units that no step exceeds."""

    def __init__(self, step_seconds: float, most: int) -> None:
        self._step_seconds = step_seconds
        self._most = most
        self._least = min(LEAST_UNITS, most)
        self._units = float(most)

    @property
    def units(self) -> float:
        """Units of the next step."""
        return self._units

    def ran(self, units: float, seconds: float) -> None:
        """A step of so many units took so long. Steps with few units say nothing about ones with many."""
        if seconds <= 0 or 2 * units < self._units:
            return
        fitting = units * self._step_seconds / seconds
        self._units = min(max(fitting, self._least), 2 * self._units, self._most)
