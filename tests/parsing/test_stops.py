from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reference import first_stop
from support.strategies import ALPHABET, pieces, stop_strings

from millstream.parsing.stops import StopMatcher, StopStrings


def visible(stops: tuple[str, ...], cut: list[str]) -> tuple[str, str | None, list[str]]:
    """The visible text, the match, and what was sent after each piece."""
    matcher = StopMatcher(StopStrings(stops))
    sent = []
    for piece in cut:
        sent.append(matcher.feed(piece))
        if matcher.matched is not None:
            return "".join(sent), matcher.matched, sent
    return "".join(sent) + matcher.flush(), None, sent


@given(st.data())
def test_equals_the_naive_search_however_the_text_is_cut(data: st.DataObject) -> None:
    text = data.draw(st.text(ALPHABET, max_size=20))
    stops = data.draw(stop_strings(text))
    cut = data.draw(pieces(text))
    seen, matched, sent = visible(stops, cut)
    expected = first_stop(text, stops)
    if expected is None:
        assert (seen, matched) == (text, None)
    else:
        end, stop = expected
        assert (seen, matched) == (text[: end - len(stop)], stop)
    assert not any(stop in seen for stop in stops)
    for count in range(1, len(sent) + (matched is None)):
        fed, out = "".join(cut[:count]), "".join(sent[:count])
        held = fed[len(out) :]
        assert fed.startswith(out)
        longest = max((n for stop in stops for n in range(len(stop)) if fed.endswith(stop[:n])), default=0)
        assert len(held) == longest  # no more and no less than can still become a stop string


@given(st.data())
def test_unarmed_text_matches_nothing_but_can_begin_a_match(data: st.DataObject) -> None:
    text = data.draw(st.text(ALPHABET, max_size=16))
    stops = data.draw(stop_strings(text))
    armed_from = data.draw(st.integers(0, len(text)))
    expected = first_stop(text, stops, [at >= armed_from for at in range(len(text))])
    matcher = StopMatcher(StopStrings(stops))
    out = ""
    for at, char in enumerate(text):
        out += matcher.feed(char, armed=at >= armed_from)
        if matcher.matched is not None:
            break
    else:
        out += matcher.flush()
    assert (out, matcher.matched) == (
        (text, None) if expected is None else (text[: expected[0] - len(expected[1])], expected[1])
    )


def test_the_first_completed_wins_and_of_those_the_longest() -> None:
    assert visible(("abcd", "bc"), ["abcd"])[:2] == ("a", "bc")
    assert visible(("bc", "abc"), ["xab", "cd"])[:2] == ("x", "abc")
    assert visible(("aab",), ["aaa", "ab"])[:2] == ("aa", "aab")


def test_held_text_survives_the_end() -> None:
    assert visible(("</end>",), ["a</", "en"]) == ("a</en", None, ["a", ""])


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopStrings(("a", ""))


def test_no_stop_strings_hold_nothing() -> None:
    assert visible((), ["a", "", "b"]) == ("ab", None, ["a", "", "b"])


def test_characters_that_regular_expressions_know_are_ordinary() -> None:
    assert visible(("]x", "^y", "\\z", "-w"), ["a-b]^\\", "z"])[:2] == ("a-b]^", "\\z")
