"""What is a refusal, what is none, and that neither depends on how the text arrives."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.parsing.refusal import LIMIT, RefusalMatcher

REFUSALS = [
    "I'm sorry, but I can't help with that.",
    "I’m sorry, but I can’t assist with that request.",
    "I cannot provide instructions for that.",
    "I can't help with this.",
    "Sorry, I can't do that.",
    "I am unable to fulfill this request.",
    "I won't create content of that kind.",
    "As an AI language model, I cannot provide medical advice.",
    "I apologize, but I cannot generate that text.",
    "I'm not able to help you with that.",
    "I must respectfully decline this request.",
    "**I cannot assist with that.**",
    "Unfortunately, I can't discuss that topic.",
    "I'm really sorry you feel this way, but I'm unable to provide the help that you need.",
]
ANSWERS = [
    "",
    "Paris is the capital of France.",
    "I can't wait to tell you about it!",
    "I cannot recommend this book enough.",
    "Sure! I can help with that.",
    "I'm sorry to hear that. Here is what you can do.",
    "You cannot provide two values here.",
    "Here is a story. 'I'm sorry, but I can't help with that,' said the robot.",
    "He said: I cannot help you.",
    "I will not lie: I like it. " + "x" * 500,
    "I won the race.",
    "The function cannot write to that file.",
]


def matched(text: str, cuts: tuple[int, ...] = ()) -> str | None:
    matcher = RefusalMatcher()
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(places):
        matcher.feed(text[start:end])
    return matcher.refusal


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals(text: str) -> None:
    assert matched(text) == text
    assert matched(f"{text} It would not be right. Ask me something else.") == text


@pytest.mark.parametrize("text", ANSWERS)
def test_answers(text: str) -> None:
    assert matched(text) is None


def test_only_the_beginning_counts() -> None:
    assert matched("Well. " * 80 + REFUSALS[0]) is None
    long = REFUSALS[0][:-1] + " and " + "more " * 300
    found = matched(long)
    assert found is not None
    assert len(found) <= LIMIT


@given(st.sampled_from(REFUSALS + ANSWERS), st.lists(st.integers(0, 80)))
def test_cuts_change_nothing(text: str, cuts: list[int]) -> None:
    assert matched(text, tuple(cuts)) == matched(text)


@given(st.text(st.sampled_from("I'm sorry can't, help.aA \n*-"), max_size=2 * LIMIT))
def test_any_text_is_read_in_bounded_time(text: str) -> None:
    matched(text)
