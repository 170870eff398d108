"""The budget of reasoning, token by token over a vocabulary of single bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.engine.protocol import ThinkingBudget
from millstream.engine.thinking import BudgetedThinking

OPEN, CLOSE = "<think>", "</think>"
FORCED = list(CLOSE.encode())


def budget(limit: int, *, opened: bool = False) -> BudgetedThinking:
    spec = ThinkingBudget(limit, CLOSE, FORCED, "" if opened else OPEN)
    return BudgetedThinking(spec, lambda token: bytes([token]))


def forced(constraint: BudgetedThinking) -> int | None:
    """The only token allowed; None: any."""
    out = np.zeros(8, np.uint32)
    constraint.mask(out)
    allowed = np.flatnonzero(np.unpackbits(out.view(np.uint8), bitorder="little")).tolist()
    assert constraint.forced() == (allowed[0] if len(allowed) == 1 else None)
    if len(allowed) == 256:
        return None
    (token,) = allowed
    return int(token)


def played(constraint: BudgetedThinking, wish: bytes) -> bytes:
    """What comes of a model that writes ``wish``, and goes on where it was when it was interrupted."""
    out = bytearray()
    rest = list(wish)
    while True:
        token = forced(constraint)
        if token is None:
            if not rest:
                return bytes(out)
            token = rest.pop(0)
        out.append(token)
        constraint.advance(token)


@pytest.mark.parametrize(
    ("limit", "opened", "wish", "expected"),
    [
        (4, False, "<think>abcdefgh", "<think>abcd</think>efgh"),
        (4, False, "\n <think>abcdefgh", "\n <think>abcd</think>efgh"),
        (4, True, "abcdefgh", "abcd</think>efgh"),
        (0, True, "abc", "</think>abc"),
        (0, False, "<think>abc", "<think></think>abc"),
        (9, False, "<think>a</think>bcdefghijklmn", "<think>a</think>bcdefghijklmn"),
        (3, False, "no thoughts <think>abcdef", "no thoughts <think>abcdef"),
        (1, True, "éa", "é</think>a"),
        (1, True, "€a", "€</think>a"),
        (2, True, "😀a", "😀</think>a"),
        (4, True, "a</tha", "a</t</think>ha"),
        (5, True, "</thi</thinkk", "</thi</think></thinkk"),
    ],
)
def test_the_close_is_forced_where_the_budget_ends(limit: int, opened: bool, wish: str, expected: str) -> None:
    assert played(budget(limit, opened=opened), wish.encode()).decode() == expected


@given(st.binary(max_size=40), st.integers(0, 20))
@example(b"\x00\x00\xe0\x80\xc0\xc0\x00", 3)
@example(b"\xc0" * 9, 1)
def test_at_most_three_more_tokens_for_a_character(wish: bytes, limit: int) -> None:
    text = played(budget(limit, opened=True), wish)
    if CLOSE.encode() in wish:
        return
    if CLOSE.encode() in text:
        at = text.index(CLOSE.encode())
        assert limit <= at <= limit + 3
        assert text[:at] + text[at + len(CLOSE) :] == wish
    else:
        assert text == wish


@given(st.text(max_size=30), st.integers(0, 20))
def test_no_character_is_cut(thoughts: str, limit: int) -> None:
    text = played(budget(limit, opened=True), thoughts.encode())
    text.decode()
