"""Hypothesis strategies for streams: tokens that are hard to decode, cuts, stop strings that overlap, sources."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st
from support.scripted_model import BOS, EOS, PIECES, THINK, TURN, UNTHINK

from millstream.ir.deltas import (
    Content,
    Delta,
    Error,
    Finish,
    Reasoning,
    Refusal,
    Start,
    ToolCallArgs,
    ToolCallStart,
    Usage,
)
from millstream.ir.errors import ApiError

ALPHABET = "ab<>é€\n"
_LETTERS = list(b"ab<>\n")
_PARTS = list(b"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xed\xff")
_MERGED = list(range(256, len(PIECES)))


def tokens(*, ends: bool = True, max_size: int = 24) -> st.SearchStrategy[list[int]]:
    """Token ids: letters, merged tokens, single bytes of characters, bytes that are never valid, control tokens;
    with ``ends`` also tokens that end a turn."""
    special = [BOS, THINK, UNTHINK, *([EOS, TURN] if ends else [])]
    token = st.one_of(
        st.sampled_from(_LETTERS), st.sampled_from(_MERGED), st.sampled_from(_PARTS), st.sampled_from(special)
    )
    # Whole characters, byte by byte: chance alone would seldom spell one.
    spelled = st.sampled_from(["é", "€", "😀", "a€b"]).map(lambda text: [bytes_id(byte) for byte in text.encode()])
    parts = st.lists(st.one_of(token.map(lambda one: [one]), spelled), max_size=max_size)
    return parts.map(lambda lists: [one for part in lists for one in part][:max_size])


def bytes_id(value: int) -> int:
    """The token that is this one byte."""
    return value


def cuts(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Where steps begin in a sequence of ``size`` tokens."""
    if size < 2:
        return st.just(())
    return st.sets(st.integers(1, size - 1)).map(lambda chosen: tuple(sorted(chosen)))


def two_cuts(size: int) -> list[tuple[int, ...]]:
    """All ways to make up to three steps of ``size`` tokens, and the extremes."""
    inner = range(1, size)
    return [(), tuple(inner), *((one,) for one in inner), *combinations(inner, 2)]


@st.composite
def stop_strings(draw: st.DrawFn, text: str = "") -> tuple[str, ...]:
    """Up to four stop strings, most of them cut out of ``text``, so that they match, nest and overlap."""
    made = st.text(ALPHABET, min_size=1, max_size=4)
    if text:
        start = st.integers(0, len(text) - 1)
        found = st.builds(lambda at, size: text[at : at + size], start, st.integers(1, 6))
        longer = st.builds(lambda at, size, tail: text[at : at + size] + tail, start, st.integers(1, 4), made)
        made = st.one_of(found, found, longer, made)
    return tuple(draw(st.lists(made, max_size=4)))


def pieces(text: str) -> st.SearchStrategy[list[str]]:
    """A text, cut into pieces (some may be empty)."""
    marks = st.lists(st.integers(0, len(text)), max_size=len(text) + 2).map(sorted)
    return marks.map(lambda at: [text[i:j] for i, j in zip([0, *at], [*at, len(text)], strict=True)])


def deltas(*, choices: int = 3) -> st.SearchStrategy[Delta]:
    """Any delta, for any of ``choices`` choices (or one too many), in no order at all."""
    choice = st.integers(0, choices)
    small = st.integers(-1, 2)
    text = st.text(ALPHABET, max_size=3)
    return st.one_of(
        st.builds(Start, st.integers(0, 9)),
        st.builds(Content, text, choice),
        st.builds(Reasoning, text, choice),
        st.builds(ToolCallStart, small, st.just("id"), st.just("name"), choice),
        st.builds(ToolCallArgs, small, text, choice),
        st.builds(Refusal, text, choice),
        st.builds(Finish, st.sampled_from(["stop", "length"]), st.builds(Usage, small, small), choice),
        st.builds(Finish, st.sampled_from(["stop", "length"]), st.builds(Usage, small, small), choice),
        st.builds(Error, text),
    )


def failures() -> st.SearchStrategy[Exception]:
    return st.sampled_from(
        [ApiError("full", type="rate_limit_exceeded", code="queue_full", status=429), ValueError("secret"), KeyError(1)]
    )


@st.composite
def sources(draw: st.DrawFn, *, choices: int = 3) -> list[Delta | Exception]:
    """What a source does: deltas, at the end perhaps an exception; nothing of it need make sense."""
    items: list[Delta | Exception] = list(draw(st.lists(deltas(choices=choices), max_size=16)))
    if draw(st.booleans()):
        items.append(draw(failures()))
    return items


@st.composite
def orderly(draw: st.DrawFn, *, choices: int = 2) -> list[Delta]:
    """A stream that keeps every rule and comes to its end."""
    out: list[Delta] = [Start(5, 2)] if draw(st.booleans()) else []
    calls = [0] * choices
    for choice in draw(st.lists(st.integers(0, choices - 1), max_size=20)):
        text = draw(st.text(ALPHABET, max_size=3))
        kind = draw(st.sampled_from(["content", "content", "reasoning", "start", "args"]))
        if kind == "content":
            out.append(Content(text, choice, (len(out),)))
        elif kind == "reasoning":
            out.append(Reasoning(text, choice, (len(out),)))
        elif kind == "start" or not calls[choice]:
            out.append(ToolCallStart(calls[choice], f"id{len(out)}", "name", choice, (len(out),)))
            calls[choice] += 1
        else:
            out.append(ToolCallArgs(draw(st.integers(0, calls[choice] - 1)), text, choice, (len(out),)))
    for choice in draw(st.permutations(range(choices))):
        if not calls[choice] and draw(st.booleans()):
            out.append(Refusal("no", choice))
        out.append(Finish("stop", Usage(5, 3, 2), choice, (len(out),)))
    return out
