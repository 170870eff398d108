"""One sequence on its way through the engine: a prompt, the tokens made so far, and the KV blocks that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from millstream.engine.protocol import PauseReason, SequenceState, SequenceView, TokenRequest, WaitReason
from millstream.scheduler.blocks import chain_digest, root_digest
from millstream.scheduler.drafts import Drafter
from millstream.scheduler.pooling import Pool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


NO_POSITIONS = range(0)

_MOST_PENALISED = 3
"""Tokens that a sequence with penalties drafts: each row is sampled with a history of its own, all tokens of it."""


class Constraint(Protocol):
    """What the output of one sequence may be. Its state depends on the output tokens alone, so that preemption does not
    touch it."""

    def mask(self, out: NDArray[np.uint32]) -> None:
        """Write the tokens that may come next into ``out`` [ceil(vocab / 32)]: bit t % 32 of word t / 32."""
        ...

    def advance(self, token: int) -> None:
        """The token was sampled."""
        ...

    def forced(self) -> int | None:
        """The only token that `mask` would allow; None also if finding out would take more than that."""
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
        "blocks",
        "cached_tokens",
        "chain",
        "charged",
        "computed",
        "constraint",
        "counts",
        "drafter",
        "order",
        "pauses",
        "pool",
        "prompt_length",
        "registered",
        "request",
        "scored",
        "since",
        "standing",
        "stretch",
        "tokens",
        "wait",
    )

    def __init__(
        self, request: TokenRequest, order: int, constraint: Constraint | None = None, since: float = 0.0
    ) -> None:
        self.request = request
        self.order = order
        self.since = since
        """When it arrived, in seconds; ``order`` counts arrivals."""
        self.standing = request.priority
        """Its class; in the batch, the one in which it was admitted."""
        self.constraint = constraint
        self.tokens = request.prompt + request.output
        self.prompt_length = len(request.prompt)
        self.computed = 0
        self.charged = 0
        """Leading tokens that its tenant has paid for: what is computed again is not paid again."""
        self.cached_tokens = 0
        self.blocks: list[int] = []
        self.chain: list[bytes] = []
        """Digests of the leading full blocks, as far as they were asked for by `digests`."""
        self.registered = 0
        """Leading blocks that the prefix cache was told of."""
        self.stretch = 0
        """Last tokens that were appended without being sampled, as nothing else could come."""
        self.drafter: Drafter | None = None
        self.wait: WaitReason | None = None
        """Why it did not advance in the last step."""
        self.pauses: set[PauseReason] = set()
        """Why it rests."""
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
    def tenant(self) -> str:
        return self.request.tenant

    @property
    def priority(self) -> int:
        return self.request.priority

    @property
    def state(self) -> SequenceState:
        if self.pauses:
            return "paused"
        if not self.blocks:
            return "queued"
        return "decode" if self.decoding and self.output_length else "prefill"

    @property
    def view(self) -> SequenceView:
        """The sequence as an operator sees it."""
        return SequenceView(self.id, self.state, self.wait, min(self.computed, self.prompt_length), self.output_length)

    @property
    def rank(self) -> tuple[int, int]:
        """Order of protection: lower is preempted last."""
        return (self.standing, self.order)

    @property
    def pending(self) -> int:
        """Tokens that the next steps must run before another token can be sampled."""
        return len(self.tokens) - self.computed

    @property
    def decoding(self) -> bool:
        """Whether nothing is pending but what the last step brought."""
        return self.pending <= 1 + self.stretch

    @property
    def cacheable(self) -> int:
        """Number of leading tokens whose keys and values may be taken from the prefix cache: it holds no logits, which
        tokens and log probabilities are made of, and no hidden states, which vectors are made of."""
        if self.pool is not None:
            return len(self.tokens) - 1 if self.pool.kind == "last" else 0
        return self.scored if self.unscored else len(self.tokens) - 1

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

    def digests(self, blocks: int, block_size: int) -> list[bytes]:
        """Names of the first ``blocks`` blocks, which are full."""
        chain = self.chain
        while len(chain) < blocks:
            start = len(chain) * block_size
            parent = chain[-1] if chain else root_digest(self.request.tenant)
            chain.append(chain_digest(parent, self.tokens[start : start + block_size]))
        return chain[:blocks]

    def draft(self, most: int, sequences: int = 1) -> list[int]:
        """Tokens that may come next, ``most`` at most, if so many sequences draft in the step. None under a grammar:
        what it allows after a draft is not known before the draft is."""
        if most < 1 or not self.request.speculation or self.constraint is not None or self.pool is not None:
            return []
        if self.drafter is None:
            self.drafter = Drafter(self.tokens)
        if self.counts is not None:
            most = min(most, _MOST_PENALISED)
        return self.drafter.draft(most, sequences)

    def forced(self) -> int | None:
        """The next token, if it is known without logits: its constraint allows no other and nothing forbids it.

        Where log probabilities are wanted every token needs logits.
        """
        request = self.request
        if self.constraint is None or not request.speculation or request.sampling.logprobs is not None:
            return None
        token = self.constraint.forced()
        return None if token in request.stop_ids or token in request.sampling.logit_bias else token

    def append(self, token: int) -> None:
        self.tokens.append(token)
        if self.drafter is not None:
            self.drafter.extend()
        if self.constraint is not None and token not in self.request.stop_ids:
            self.constraint.advance(token)
        if self.counts is not None:
            self.counts[token] = self.counts.get(token, 0) + 1
