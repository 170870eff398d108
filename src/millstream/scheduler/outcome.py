"""What the sampled tokens of one step make of a sequence: how many of them hold, and whether it has ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence as SequenceOf

import msgspec

from millstream.engine.protocol import TokenFinish
from millstream.scheduler.sequence import Sequence

log = logging.getLogger(__name__)


class Outcome(msgspec.Struct, frozen=True):
    """``taken``: leading sampled tokens that were appended. ``finish`` None: the sequence goes on."""

    taken: int
    finish: TokenFinish | None = None
    error: str | None = None
    refused: bool = False


def take(sequence: Sequence, sampled: SequenceOf[int], draft: SequenceOf[int]) -> Outcome:
    """Append what was sampled after the last token, and after each token of ``draft`` as long as that was right.

    Token k was sampled as if the draft's first k tokens had been sampled before it: it holds if they were.
    """
    taken = 0
    for token in sampled:
        if token < 0:
            return _nothing_allowed(sequence, taken)
        try:
            sequence.append(token)
            whole = sequence.constraint is not None and sequence.constraint.finished
        except Exception:  # grammars are strangers', and the library that follows them is not ours
            log.exception("a constraint failed")
            return Outcome(taken, "error", "the grammar of the answer could not be followed")
        taken += 1
        if whole or token in sequence.request.stop_ids:
            return Outcome(taken, "stop")
        if sequence.output_length >= sequence.request.max_tokens:
            return Outcome(taken, "length")
        if taken > len(draft) or token != draft[taken - 1]:
            break
    return Outcome(taken)


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
