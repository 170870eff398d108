"""What an answer must be, written as plainly as possible over the whole token list: no state machine, no streaming."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from support.scripted_model import BOS, PIECES

# Well-formed UTF-8 (Unicode 15, table 3-7), each alternative cut short at every place where a character can be cut.
_CUT = re.compile(
    rb"(?:[\xc2-\xdf]|\xe0(?:[\xa0-\xbf])?|[\xe1-\xec\xee\xef](?:[\x80-\xbf])?|\xed(?:[\x80-\x9f])?"
    rb"|\xf0(?:[\x90-\xbf][\x80-\xbf]?)?|[\xf1-\xf3](?:[\x80-\xbf]{1,2})?|\xf4(?:[\x80-\x8f][\x80-\xbf]?)?)\Z"
)


class Expected(NamedTuple):
    text: str
    stop_sequence: str | None
    reason: str
    tokens: list[int]


def certain(raw: bytes) -> str:
    """The text of ``raw`` that no further bytes can change."""
    cut = _CUT.search(raw[-3:])
    return (raw[: len(raw) - len(cut.group())] if cut else raw).decode("utf-8", "replace")


def decoded(tokens: Sequence[int]) -> list[tuple[str, int]]:
    """Characters, each with the number of tokens that made it certain (the last, for a character that the end cut)."""
    out: list[tuple[str, int]] = []
    raw, before = b"", ""
    for count, token in enumerate(tokens, 1):
        if token >= BOS:
            text = raw.decode("utf-8", "replace")
            out += [(char, count) for char in text[len(before) :]]
            raw, before = b"", ""
            continue
        raw += PIECES[token]
        text = certain(raw)
        out += [(char, count) for char in text[len(before) :]]
        before = text
    out += [(char, len(tokens)) for char in raw.decode("utf-8", "replace")[len(before) :]]
    return out


def first_stop(text: str, stops: Collection[str], armed: Sequence[bool] | None = None) -> tuple[int, str] | None:
    """The number of characters that completes the first stop string, and the longest one completed there."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found and (armed is None or armed[end - 1]):
            return end, max(found, key=len)
    return None


def answer(
    tokens: Sequence[int], *, stops: Collection[str], stop_ids: Collection[int], min_tokens: int, max_tokens: int
) -> Expected:
    """The answer if a model says ``tokens``, of which an engine reports ``max_tokens`` at most."""
    tokens, reason = list(tokens[:max_tokens]), "length" if len(tokens) >= max_tokens else "stop"
    seen = tokens
    for count, token in enumerate(tokens, 1):
        if count > min_tokens and token in stop_ids:
            tokens, reason = tokens[:count], "stop"
            seen = [*tokens[:-1], BOS]  # a stop token has no text: any control token will do
            break
    chars = decoded(seen)
    text = "".join(char for char, _ in chars)
    match = first_stop(text, stops, [count > min_tokens for _, count in chars])
    if match is None:
        return Expected(text, None, reason, tokens)
    end, stop = match
    return Expected(text[: end - len(stop)], stop, "stop", tokens[: chars[end - 1][1]])
