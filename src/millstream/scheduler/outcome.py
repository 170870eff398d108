"""What the sampled tokens of one step make of a sequence: how many of them hold, and whether it has ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence as SequenceOf

import msgspec

from millstream.engine.protocol import TokenFinish
from millstream.scheduler.sequence import Sequence

log = logging.getLogger(__name__)


LONGEST_STRETCH = 15
"""Tokens that are appended at once without being sampled; with the one before them they fill one tile of 16 rows, and
those who share the step do not wait long."""


class Outcome(msgspec.Struct, frozen=True):
    """``taken``: leading sampled tokens that were appended; ``forced``: tokens appended after them that nothing was
    sampled for. ``finish`` None: the sequence goes on."""

    taken: int
    finish: TokenFinish | None = None
    error: str | None = None
    refused: bool = False
    forced: int = 0

    @property
    def appended(self) -> int:
        return self.taken + self.forced


def take(sequence: Sequence, sampled: SequenceOf[int], draft: SequenceOf[int]) -> Outcome:
    """Append what was sampled after the last token, and after each token of ``draft`` as long as that was right; then
    what can only follow.

    Token k was sampled as if the draft's first k tokens had been sampled before it: it holds if they were.
    """
    start = len(sequence.tokens)
    taken = 0
    finish: TokenFinish | None = None
    sequence.stretch = 0
    try:
        for token in sampled:
            if token < 0:
                return _nothing_allowed(sequence, taken)
            finish = _append(sequence, token)
            taken += 1
            if finish is not None or taken > len(draft) or token != draft[taken - 1]:
                break
        while finish is None and sequence.stretch < LONGEST_STRETCH and (only := sequence.forced()) is not None:
            finish = _append(sequence, only)
            sequence.stretch += 1
    except Exception:  # grammars are strangers', and the library that follows them is not ours
        log.exception("a constraint failed")
        forced = sequence.stretch
        del sequence.tokens[start + taken + forced :]
        return Outcome(taken, "error", "the grammar of the answer could not be followed", forced=forced)
    return Outcome(taken, finish, forced=sequence.stretch)


def _append(sequence: Sequence, token: int) -> TokenFinish | None:
    """Append a token; returns how the sequence ends with it, if it does."""
    sequence.append(token)
    whole = sequence.constraint is not None and sequence.constraint.finished
    if whole or token in sequence.request.stop_ids:
        return "stop"
    return "length" if sequence.output_length >= sequence.request.max_tokens else None


def _nothing_allowed(sequence: Sequence, taken: int) -> Outcome:
    """The end of a sequence that has no next token, and whose fault it is."""
    request, constraint = sequence.request, sequence.constraint
    if constraint is not None and constraint.error is not None:
        why, refused = f"the grammar of the answer went over a limit ({constraint.error})", True
    elif constraint is not None:
        why, refused = "the grammar of the answer allows only tokens that the request forbids", True
    elif sequence.output_length < request.min_tokens or request.sampling.logit_bias:
        why, refused = "min_tokens and logit_bias of the request forbid every token", True
    else:
        why, refused = "the model gave no number for any token", False
    return Outcome(taken, "error", f"no token is allowed at this position: {why}", refused)
