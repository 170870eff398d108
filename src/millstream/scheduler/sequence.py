"""One sequence on its way through the engine: a prompt, the tokens made so far, and the KV blocks that hold them."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Protocol

from millstream.engine.protocol import TokenRequest
from millstream.scheduler.pooling import Pool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


NO_POSITIONS = range(0)


class Constraint(Protocol):
    """What the output of one sequence may be. Its state depends on the output tokens alone, so that preemption does not
    touch it."""

    def mask(self, out: NDArray[np.uint32]) -> None:
        """Write the tokens that may come next into ``out`` [ceil(vocab / 32)]: bit t % 32 of word t / 32."""
        ...

    def advance(self, token: int) -> None:
        """The token was sampled."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the output is whole and nothing may follow."""
        ...

    @property
    def error(self) -> str | None:
        """Why nothing may follow although the output is not whole."""
        ...


class Sequence:
    """Mutable state of a `TokenRequest`.

    ``tokens`` is prompt plus output; ``computed`` counts the leading tokens whose keys and values are in ``blocks``.
    What is not computed yet is the next step's work: one token while decoding, more during prefill or after preemption.
    """

    __slots__ = (
        "announced",
        "arrival",
        "blocks",
        "cached_tokens",
        "computed",
        "constraint",
        "counts",
        "digest",
        "pool",
        "prompt_length",
        "registered",
        "request",
        "scored",
        "tokens",
    )

    def __init__(self, request: TokenRequest, arrival: int, constraint: Constraint | None = None) -> None:
        self.request = request
        self.arrival = arrival
        self.constraint = constraint
        self.tokens = request.prompt + request.output
        self.prompt_length = len(request.prompt)
        self.computed = 0
        self.cached_tokens = 0
        self.blocks: list[int] = []
        self.registered = 0
        """Leading blocks that the prefix cache was told of; ``digest`` names the last of them."""
        self.digest = b""
        self.announced = False
        """Whether the client was told that prefill began."""
        self.scored = request.scored
        """Prompt tokens after the first whose log probabilities were reported."""
        self.pool = Pool(request.pooling) if request.pooling is not None else None
        sampling = request.sampling
        penalised = sampling.repetition_penalty != 1.0 or sampling.presence_penalty or sampling.frequency_penalty
        self.counts: dict[int, int] | None = dict.fromkeys(request.prompt, 0) if penalised else None
        """Occurrences in the output of each token seen (0: in the prompt only); None if no penalty needs them."""
        if self.counts is not None:
            for token in request.output:
                self.counts[token] = self.counts.get(token, 0) + 1

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def rank(self) -> tuple[int, int]:
        """Order of service: lower is served first and preempted last."""
        return (self.request.priority, self.arrival)

    @property
    def pending(self) -> int:
        """Tokens that the next steps must run before another token can be sampled."""
        return len(self.tokens) - self.computed

    @property
    def cacheable(self) -> SequenceOf[int]:
        """The leading tokens whose keys and values may be taken from the prefix cache, but for the last of them: the
        cache holds no hidden states, which vectors are made of, and no logits, which log probabilities are made of."""
        if self.pool is not None:
            return self.tokens if self.pool.kind == "last" else []
        return self.tokens[: self.scored + 1] if self.unscored else self.tokens

    @property
    def unscored(self) -> bool:
        """Whether log probabilities of the prompt are still to be reported."""
        return self.request.prompt_logprobs is not None and self.scored < self.prompt_length - 1

    def to_score(self, count: int) -> range:
        """Positions among the next ``count`` whose logits tell the log probability of the prompt token that follows."""
        if not self.unscored:
            return NO_POSITIONS
        return range(max(self.computed, self.scored), min(self.computed + count, self.prompt_length - 1))

    @property
    def output_length(self) -> int:
        return len(self.tokens) - self.prompt_length

    def append(self, token: int) -> None:
        self.tokens.append(token)
        if self.constraint is not None and token not in self.request.stop_ids:
            self.constraint.advance(token)
        if self.counts is not None:
            self.counts[token] = self.counts.get(token, 0) + 1
