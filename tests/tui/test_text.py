"""What others wrote, on the screen: never obeyed by the terminal, never read as markup, never too long."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from millstream.tui import text

ANY_TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x1b\x9b\x00\r\n\t\x7f\u202e[]"))
NUMBERS = st.integers(-(10**40), 10**40)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(ANY_TEXT)
def test_no_character_that_a_terminal_obeys_is_left(raw: str) -> None:
    safe = text.plain(raw)
    assert {unicodedata.category(each) for each in safe.replace("\n", "")}.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    assert not set(safe) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
    safe.encode()


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_text_without_such_characters_stays_as_it_is(raw: str) -> None:
    assert text.plain(raw) == raw


def test_an_escape_sequence_is_seen() -> None:
    assert text.plain("a\x1b[31mb\x9b2J\r\n") == "a␛[31mb\ufffd2J\n"


@given(ANY_TEXT, st.integers(1, 30))
def test_a_line_is_one_line_and_no_longer_than_wanted(raw: str, width: int) -> None:
    shown = text.line(raw, width)
    assert "\n" not in shown
    assert len(shown) <= width


def test_a_cell_is_not_read_as_markup() -> None:
    made = text.cell("[bold red]x[/] [@click=app.quit]y[/]", 60)
    assert made.plain == "[bold red]x[/] [@click=app.quit]y[/]"
    assert made.spans == []


@given(NUMBERS)
def test_counts_and_sizes_of_any_number_are_short(value: int) -> None:
    assert cell_len(text.count(value)) <= 8
    assert cell_len(text.size(value)) <= 8


@given(FLOATS)
def test_measures_of_any_number_are_short(value: float) -> None:
    for write in (text.rate, text.seconds, text.percent):
        assert cell_len(write(value)) <= 9
    assert cell_len(text.age(value)) <= 12
    assert text.clock(value)
    assert text.moment(value)


def test_numbers_as_people_read_them() -> None:
    assert [text.count(value) for value in (0, 950, 9_999, 12_345, 4_500_000, 10**12)] == [
        "0", "950", "9999", "12.3k", "4.5M", "≫",
    ]  # fmt: skip
    assert [text.rate(value) for value in (None, 3.14159, 99.96, 128.4)] == ["–", "3.1", "100", "128"]
    assert [text.size(value) for value in (999, 98_300_000, 1_500_000_000)] == ["999 B", "98 MB", "1.5 GB"]
    assert [text.seconds(value) for value in (0.0042, 0.0218, 0.94, 1.25)] == ["4.2 ms", "22 ms", "940 ms", "1.25 s"]
    assert [text.seconds(value) for value in (999.4, 1_234.5, -1_000.0)] == ["999.40 s", "1234 s", "-1000 s"]
    assert [text.age(value) for value in (42, 185, 7_620, 356_400)] == ["42s", "3m 05s", "2h 07m", "4d 03h"]


@given(NUMBERS, NUMBERS)
def test_a_share_is_between_nothing_and_all(part: int, whole: int) -> None:
    share = text.share(part, whole)
    assert share is None or 0 <= share <= 1
