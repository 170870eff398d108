"""Speculation by prompt lookup: what followed the last tokens when they stood in the text before may follow again.

The source is the sequence itself, prompt and output, so there is no second model. After every token the draft is what
follows the latest earlier place with the same last `NGRAM` tokens; as long as the text goes on as it did there, the
place is kept (Saxena, "Prompt Lookup Decoding", 2023; here with a place that is followed and a length that is earned).

How many tokens are worth a try depends on the text alone, so that a schedule repeats: a copy that has held for long is
drafted further, and a sequence whose drafts fail is left alone for longer each time.
"""

from __future__ import annotations

NGRAM = 3
"""Tokens that must agree before anything is drafted."""

LONGEST_DRAFT = 15
"""With the token before it, a draft fills one tile of 16 rows."""

_SHORTEST = 2
_LONGEST_REST = 128


class Drafter:
    """Follows one sequence. `draft` proposes, `judge` learns what was right of it, `extend` takes each new token."""

    def __init__(self, tokens: list[int]) -> None:
        """``tokens`` is the sequence's own list: it grows before `extend` is called."""
        self._tokens = tokens
        self._places: dict[tuple[int, ...], int] = {}
        self._indexed = NGRAM - 1
        self._place: int | None = None
        """Where in the text the next token stands, if the copy holds."""
        self._length = _SHORTEST
        self._failures = 0
        self._rest = 0
        self._index()
        self._look_up()

    def extend(self) -> None:
        """The sequence has one more token."""
        place = self._place
        if place is not None and self._tokens[place] == self._tokens[-1]:
            self._place = place + 1
        else:
            self._place = None
        if self._rest:
            self._rest -= 1
        self._index()
        if self._place is None:
            self._look_up()

    def draft(self, most: int) -> list[int]:
        """Tokens that may come next, ``most`` at most; often none."""
        if self._place is None or self._rest:
            return []
        count = min(self._length, most)
        return self._tokens[self._place : self._place + count]

    def judge(self, drafted: int, accepted: int) -> None:
        """Of a draft so many tokens were right."""
        if accepted == drafted:
            self._length = min(2 * self._length, LONGEST_DRAFT)
            self._failures = 0
        else:
            self._length = max(accepted + 1, _SHORTEST) if accepted else _SHORTEST
            self._failures = 0 if 2 * accepted >= drafted else self._failures + 1
            if not accepted or self._failures > 1:
                self._rest = min(2 ** (self._failures + 1), _LONGEST_REST)

    def _look_up(self) -> None:
        """Find the latest earlier place of the last tokens."""
        self._place = self._places.get(tuple(self._tokens[-NGRAM:]))

    def _index(self) -> None:
        """Note what follows each run of tokens, but for the last run, which nothing follows yet."""
        tokens = self._tokens
        for end in range(self._indexed, len(tokens) - 1):
            self._places[tuple(tokens[end - NGRAM + 1 : end + 1])] = end + 1
        self._indexed = max(self._indexed, len(tokens) - 1)
