"""A runner whose next token is a function of the tokens before it, so that any schedule must give the same output."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING

from millstream.engine.protocol import TokenAlternatives, TokenRequest
from millstream.scheduler.scheduler import Chunk, Sampled

if TYPE_CHECKING:  # to import it takes longer than all else that a scripted engine process does
    import numpy as np
    from numpy.typing import NDArray

VOCABULARY = 97


def next_token(tokens: list[int]) -> int:
    """The token that the scripted model says after ``tokens``."""
    return blake2b(repr(tokens).encode(), digest_size=2).digest()[0] % VOCABULARY


def token_score(tokens: list[int], token: int, count: int) -> TokenAlternatives:
    """The scripted log probability of ``token`` after ``tokens``, with ``count`` alternatives."""
    best = next_token(tokens)
    return TokenAlternatives(
        -(blake2b(repr((tokens, token)).encode(), digest_size=4).digest()[0] / 16),
        [(best + k) % VOCABULARY for k in range(count)],
        [-0.5 - k for k in range(count)],
    )


def expected_scores(request: TokenRequest) -> list[TokenAlternatives]:
    """Log probabilities of a request's prompt, run alone."""
    count, prompt = request.prompt_logprobs, request.prompt
    if count is None:
        return []
    return [token_score(prompt[:at], prompt[at], count) for at in range(1, len(prompt))]


def hidden_state(tokens: list[int]) -> NDArray[np.float32]:
    """The scripted hidden state of the last of ``tokens``: sums of such values are not exact in float32."""
    import numpy as np

    digest = blake2b(repr(tokens).encode(), digest_size=16).digest()
    return np.frombuffer(digest, "<u4").astype(np.float32) * np.float32(1e-9)


Model = Callable[[list[int]], int]
"""The next token after some."""


def repeating(period: int) -> Model:
    """A model that says what it read ``period`` tokens ago, but for an own word now and then."""

    def model(tokens: list[int]) -> int:
        if len(tokens) < period or len(tokens) % 11 == 0:
            return next_token(tokens)
        return tokens[-period]

    return model


def expected_output(request: TokenRequest, model: Model = next_token) -> tuple[list[int], str]:
    """Output and finish of a request run alone."""
    tokens = list(request.prompt)
    for _ in range(request.max_tokens):
        tokens.append(model(tokens))
        if tokens[-1] in request.stop_ids:
            return tokens[len(request.prompt) :], "stop"
    return tokens[len(request.prompt) :], "length"


class ScriptedRunner:
    """Keeps the tokens that each page holds, and reads the context back from the pages as a real engine would."""

    native_seconds = 0.0
    progress = 0

    def __init__(self, block_size: int, model: Model = next_token) -> None:
        self._model = model
        self._block_size = block_size
        self._pages: dict[int, list[int]] = {}
        self.steps: list[list[tuple[str, int, int, bool]]] = []

    def execute(self, chunks: list[Chunk]) -> Sampled:
        self.steps.append([(c.sequence.id, c.start, c.count, c.sample) for c in chunks])
        tokens = []
        hidden = []
        scores: list[list[TokenAlternatives]] = []
        alternatives: list[TokenAlternatives | None] = []
        for chunk in chunks:
            sequence = chunk.sequence
            for position, token in enumerate(chunk.tokens, chunk.start):
                page = self._pages.setdefault(sequence.blocks[position // self._block_size], [])
                del page[position % self._block_size :]
                assert len(page) == position % self._block_size, "a position was skipped"
                page.append(token)
            for end in range(chunk.start + chunk.count - chunk.rows + 1, chunk.start + chunk.count + 1):
                tokens.append(self._model(self._read(sequence.blocks, end)))
                alternatives.append(None)
            if chunk.hidden:
                import numpy as np

                end = chunk.start + chunk.count
                rows = [hidden_state(self._read(sequence.blocks, n + 1)) for n in range(end - chunk.hidden, end)]
                hidden.append(np.stack(rows))
            if chunk.score:
                assert chunk.start <= chunk.score.start
                assert chunk.score.stop <= chunk.start + chunk.count
                count = sequence.request.prompt_logprobs
                assert count is not None
                scores.append(
                    [
                        token_score(self._read(sequence.blocks, at + 1), sequence.tokens[at + 1], count)
                        for at in chunk.score
                    ]
                )
        return Sampled(tokens, alternatives, hidden, scores)

    def _read(self, blocks: list[int], length: int) -> list[int]:
        """The context as the pages hold it."""
        found: list[int] = []
        for block in blocks:
            found += self._pages.get(block, [])[: length - len(found)]
        assert len(found) == length, "the pages do not hold the context"
        return found
