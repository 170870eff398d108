"""Speculation by prompt lookup: what followed the last tokens when they stood in the text before may follow again.

The source is the sequence itself, prompt and output, so there is no second model (Saxena, "Prompt Lookup Decoding",
2023). A place of the text is followed for as long as the answer goes on as it did there. Where they part, an edit has
mostly changed, left out or put in a few tokens and goes on with the copy. So that is taken up again at once, as if one
token was changed, then where the last token stands near; failing that, at the latest place of the last `NGRAM` tokens.

How many tokens are tried is a matter of their cost and of the chance that they are right. Chances are learned from
every token that a place foretold, drafted or not: what only seems to repeat is found out without being tried. Nothing
depends on a clock, so that a schedule repeats.
"""

from __future__ import annotations

NGRAM = 3
"""Tokens that must agree before a place far from the last one is followed."""

LONGEST_DRAFT = 15
"""With the token before it, a draft fills one tile of 16 rows."""

DRAFT_ROWS = 64
"""Rows of a step with drafts, over all sequences."""

ROW_COST = 0.3
"""Time of one more row in a step, as a share of a step of one row; docs/performance.md has the measurements. With 0.2
or 0.4 recorded answers took three per cent longer at most."""

_NEAR = 16
"""How many tokens an edit may put in or leave out for the copy to be looked for behind it."""

_LEARNING = 1 / 16
_FIRST_CHANCES = (0.2, 0.3, 0.4, 0.9)
"""Before anything is learned: the chance of the token after 0, 1, 2 to 3, and 4 or more that agreed. Rather low: what
repeats much shows it soon."""


def most_rows(max_sequences: int) -> int:
    """Rows that a step samples at most: one of each sequence, or those of drafts."""
    return max(max_sequences, min(DRAFT_ROWS, max_sequences * (1 + LONGEST_DRAFT)))


class Drafter:
    """Follows one sequence. `extend` takes each new token, `draft` proposes."""

    def __init__(self, tokens: list[int]) -> None:
        """``tokens`` is the sequence's own list: it grows before `extend` is called."""
        self._tokens = tokens
        self._places: dict[tuple[int, ...], int] = {}
        self._indexed = NGRAM - 1
        self._place: int | None = None
        """Where in the text the next token stands, if the copy holds."""
        self._agreed = 0
        """How many of the last tokens are known to agree with those before the place."""
        self._parted: int | None = None
        """Where the copy was that the answer parted from last."""
        self._since = 0
        """Tokens that came since then without a place."""
        self._chances = list(_FIRST_CHANCES)
        self._index()
        self._look_up()

    def extend(self) -> None:
        """The sequence has one more token."""
        place = self._place
        if place is not None:
            right = self._tokens[place] == self._tokens[-1]
            kind = _kind(self._agreed)
            self._chances[kind] += (right - self._chances[kind]) * _LEARNING
            if right:
                self._place = place + 1
                self._agreed += 1
            else:
                self._part(place)
        self._index()
        if self._place is None:
            self._since += 1
            self._take_up()
        if self._place is None:
            self._look_up()

    def draft(self, most: int, sequences: int = 1) -> list[int]:
        """Tokens that may come next, ``most`` at most; often none.

        A token is worth its row if the chance that it is taken exceeds what the step brings per time, times the time of
        a row: each of ``sequences`` has a row of its own, and as many for drafts as this one.
        """
        place = self._place
        if place is None:
            return []
        most = min(most, LONGEST_DRAFT, len(self._tokens) - place)
        count, chance, expected = 0, 1.0, 1.0
        while count < most:
            chance *= self._chances[_kind(self._agreed + count)]
            time = 1 + ROW_COST * (sequences * (1 + count) - 1)
            if chance < sequences * expected / time * ROW_COST:
                break
            expected += chance
            count += 1
        return self._tokens[place : place + count]

    def _part(self, place: int) -> None:
        """The answer does not go on as at ``place``; if that was followed by mistake, what was parted from before is
        still what may be taken up again."""
        self._place = None
        if self._parted is None or self._agreed > NGRAM:
            self._parted = place
            self._since = 0

    def _take_up(self) -> None:
        """Follow the copy again near where the answer parted from it, if the last token stands there."""
        tokens, parted, since = self._tokens, self._parted, self._since
        if parted is None or since > _NEAR:
            return
        if since == 1:
            self._place, self._agreed = parted + 1, 0
            return
        for place in range(parted + 1, min(parted + since + _NEAR, len(tokens) - 1) + 1):
            if tokens[place - 1] == tokens[-1]:
                self._place, self._agreed = place, 1
                return

    def _look_up(self) -> None:
        """Follow the latest earlier place of the last tokens."""
        self._place = self._places.get(tuple(self._tokens[-NGRAM:]))
        self._agreed = NGRAM

    def _index(self) -> None:
        """Note what follows each run of tokens, but for the last run, which nothing follows yet."""
        tokens = self._tokens
        for end in range(self._indexed, len(tokens) - 1):
            self._places[tuple(tokens[end - NGRAM + 1 : end + 1])] = end + 1
        self._indexed = max(self._indexed, len(tokens) - 1)


def _kind(agreed: int) -> int:
    """Which chance is that of the token after so many that agreed."""
    return min(agreed.bit_length(), len(_FIRST_CHANCES) - 1)
