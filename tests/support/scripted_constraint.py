"""A constraint that leaves the scripted model no choice in stretches, so that the tokens are those without it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from millstream.engine.core import GrammarCounts
from millstream.engine.protocol import TokenRequest
from support.scripted_runner import next_token


class Knows:
    """What the scripted model says, at ``length`` of every ``period`` positions."""

    finished = False
    error: str | None = None

    def __init__(self, tokens: list[int], length: int, period: int) -> None:
        self._tokens = list(tokens)
        self._length = length
        self._period = period

    def mask(self, out: NDArray[np.uint32]) -> None:
        raise AssertionError("the scripted runner samples without masks")

    def forced(self) -> int | None:
        return next_token(self._tokens) if len(self._tokens) % self._period < self._length else None

    def advance(self, token: int) -> None:
        self._tokens.append(token)


class Stretches:
    """Constraints of requests whose grammar is ``"LENGTH of PERIOD"``."""

    def __call__(self, request: TokenRequest) -> Knows | None:
        if request.grammar is None:
            return None
        length, _, period = request.grammar.split()
        return Knows([*request.prompt, *request.output], int(length), int(period))

    def counts(self) -> GrammarCounts:
        return GrammarCounts()
