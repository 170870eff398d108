"""How many tokens a step may have so that nobody who comes during it waits long. Pure: durations are passed in.

A long prompt is computed in chunks, and a request that arrives meanwhile waits for the end of the chunk that runs.
Prompt tokens grow dearer with the context that they look back on, so a fixed number of them is no bound on time. The
number is therefore steered by what the last steps took: down at once, up by a factor of two per step at most.
"""

from __future__ import annotations

LEAST_TOKENS = 64
"""Below this the weights would be read too often for the tokens that they serve."""


class Pace:
    """``step_seconds``: what a step should take; ``most``: tokens that no step exceeds."""

    def __init__(self, step_seconds: float, most: int) -> None:
        self._step_seconds = step_seconds
        self._most = most
        self._least = min(LEAST_TOKENS, most)
        self._tokens = float(most)

    @property
    def tokens(self) -> int:
        """Tokens of the next step."""
        return int(self._tokens)

    def ran(self, tokens: int, seconds: float) -> None:
        """A step with so many tokens took so long. Steps with few tokens say nothing about ones with many."""
        if seconds <= 0 or 2 * tokens < self._tokens:
            return
        fitting = tokens * self._step_seconds / seconds
        self._tokens = min(max(fitting, self._least), 2 * self._tokens, self._most)
