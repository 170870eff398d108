"""Whether a sequence that was run again is the one that was recorded."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from millstream.engine.protocol import TokenFinish, TokenRequest
from millstream.journal.records import Sequence, token_request


class Rerun(NamedTuple):
    """What came of a sequence this time. ``embedding``: SHA-256 in hex."""

    tokens: list[int]
    finish: TokenFinish | None
    error: str | None = None
    embedding: str | None = None


class Difference(NamedTuple):
    """The first one. ``position``: of the token in the answer; None if it is no token that differs."""

    position: int | None
    recorded: str
    now: str


def is_whole(sequence: Sequence) -> bool:
    """Whether the sequence ended by itself. Others (the reader left, a stop string matched, the time was up, the engine
    failed) might have gone on, so that only their beginning can be compared."""
    return sequence.finish in ("stop", "length")


def request_again(sequence: Sequence) -> TokenRequest | None:
    """What to ask for to compare a sequence; None if nothing came of it, so that there is nothing to compare.

    Raises:
        ValueError: it was recorded by a version that knew more.
    """
    request = token_request(sequence)
    if is_whole(sequence):
        return request
    if not sequence.tokens:
        return None
    count = len(sequence.tokens)
    # No stop token may come before ``min_tokens``; within the tokens that are compared this stays so.
    return replace(request, max_tokens=count, min_tokens=min(request.min_tokens, count))


def difference(sequence: Sequence, again: Rerun) -> Difference | None:
    """The first difference; None: the same, as far as it was recorded."""
    if again.finish in (None, "error", "timeout"):
        return Difference(None, _end(sequence.finish), again.error or _end(again.finish))
    for position, (before, now) in enumerate(zip(sequence.tokens, again.tokens, strict=False)):
        if before != now:
            return Difference(position, f"token {before}", f"token {now}")
    before_count, now_count = len(sequence.tokens), len(again.tokens)
    if before_count != now_count:
        at = min(before_count, now_count)
        longer = sequence.tokens if before_count > now_count else again.tokens
        texts = (f"token {longer[at]}", "the end") if before_count > now_count else ("the end", f"token {longer[at]}")
        return Difference(at, *texts)
    if is_whole(sequence) and sequence.finish != again.finish:
        return Difference(None, _end(sequence.finish), _end(again.finish))
    if sequence.embedding != again.embedding and is_whole(sequence):
        return Difference(None, f"vector {sequence.embedding}", f"vector {again.embedding}")
    return None


def _end(finish: TokenFinish | None) -> str:
    return f"finish {finish}" if finish is not None else "no end"
