"""Every format over the corpus: meaning, partition invariance, control tokens, truncation."""

from __future__ import annotations

import pytest

from millstream.parsing.events import CallArgs, CallEnd, CallStart, Event, Piece, Span
from millstream.parsing.registry import TOOL_FORMATS, create_parser
from millstream.parsing.scan.machine import joined
from parsing.driver import TOOLS, Call, Case, Thought, assert_same_however_cut, fold, run, with_special
from parsing.tools.corpus import CASES

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.format}: {case.name}")


def test_every_format_has_cases() -> None:
    assert {case.format for case in CASES} == set(TOOL_FORMATS)


def merged(items: list) -> list:
    """Neighbouring text made one, as a call's markup between two texts leaves none behind."""
    out: list = []
    for item in items:
        if out and isinstance(item, str) and isinstance(out[-1], str):
            out[-1] += item
        else:
            out.append(item)
    return out


@cases
def test_meaning_however_cut(case: Case) -> None:
    events = assert_same_however_cut(case.parser, case.text)
    assert fold(events) == merged(list(case.expected))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.markers and not case.quoted], ids=lambda case: f"{case.format}: {case.name}"
)
def test_markers_as_control_tokens(case: Case) -> None:
    pieces = with_special(case.text, case.markers)
    expected = run(case.parser(), [case.text])
    assert run(case.parser(), pieces) == expected
    cut = [Piece(char) for piece in pieces if not piece.special for char in piece.text]
    assert len(cut) < len(case.text) or not any(piece.special for piece in pieces)
    one_by_one = [
        part for piece in pieces for part in ([piece] if piece.special else [Piece(char) for char in piece.text])
    ]
    assert run(case.parser(), one_by_one) == expected


def begins(events: list[Event], whole: list[Event]) -> bool:
    """Whether ``events`` can be continued to ``whole``."""
    if events and isinstance(events[-1], (Span, CallArgs)) and len(events) <= len(whole):
        last, at = events[-1], whole[len(events) - 1]
        if isinstance(last, Span):
            same = isinstance(at, Span) and at.channel == last.channel and at.text.startswith(last.text)
        else:
            same = isinstance(at, CallArgs) and at.fragment.startswith(last.fragment)
        return same and events[:-1] == whole[: len(events) - 1]
    return events == whole[: len(events)]


@cases
def test_truncated_anywhere(case: Case) -> None:
    whole = run(case.parser(), [case.text])
    whole_calls = [item for item in fold(whole) if isinstance(item, Call)]
    for end in range(len(case.text)):
        parser = case.parser()
        streamed = joined(parser.feed(Piece(case.text[:end])))
        assert begins(streamed, whole), (streamed, case.text[:end])
        rest = parser.finish()
        calls = [item for item in fold(joined(streamed + rest)) if isinstance(item, Call)]
        assert len(calls) <= len(whole_calls)
        for index, (cut, full) in enumerate(zip(calls, whole_calls, strict=False)):
            assert (cut.name, cut.id) == (full.name, full.id)
            assert index == len(calls) - 1 or cut == full
            if not case.quoted:
                assert full.arguments.startswith(cut.arguments) or guessed(cut, full), case.text[:end]
            assert not (cut.complete and cut.arguments != full.arguments)


def guessed(cut: Call, full: Call) -> bool:
    """Whether the last value, which was cut, has been written as a string because it could still become one."""
    at = next((i for i, (a, b) in enumerate(zip(cut.arguments, full.arguments, strict=False)) if a != b), None)
    return at is not None and cut.arguments[at] == '"' and '"' not in cut.arguments[at + 1 :]


@cases
def test_finish_is_final(case: Case) -> None:
    parser = case.parser()
    parser.feed(Piece(case.text))
    parser.finish()
    assert parser.finish() == []
    assert parser.feed(Piece("late")) == []


@cases
def test_unknown_control_tokens_vanish(case: Case) -> None:
    expected = run(case.parser(), [case.text])
    around = [Piece("<|nobody|>", special=True), Piece(case.text), Piece("<|eot|>", special=True)]
    assert fold(run(case.parser(), around)) == fold(expected) or any(
        isinstance(item, Call) and not item.complete for item in fold(expected)
    )
    shown = "".join(event.text for event in run(case.parser(), around) if isinstance(event, Span))
    assert "nobody" not in shown
    assert "eot" not in shown


def test_call_ends_before_what_follows() -> None:
    """The pipeline can stop after the first call: its end comes with the character that completes it."""
    for case in CASES:
        calls = [item for item in case.expected if isinstance(item, Call)]
        if len(calls) < 2 or not all(call.complete for call in calls):
            continue
        parser = case.parser()
        seen: list[Event] = []
        for char in case.text:
            seen += parser.feed(Piece(char))
            if any(isinstance(event, CallEnd) for event in seen):
                break
        first = [item for item in fold(joined(seen)) if not isinstance(item, Thought | str)]
        assert first == calls[:1], case.name


@pytest.mark.parametrize("format", sorted(TOOL_FORMATS))
def test_text_is_not_held_back(format: str) -> None:
    """Characters that no marker begins with go out at once; only white space waits for what follows it."""
    parser = create_parser(format, "none", TOOLS)
    sent = ""
    text = "Hello, world.  Nothing - 1 2 3; é!"
    for at, char in enumerate(text, 1):
        sent += "".join(event.text for event in parser.feed(Piece(char)) if isinstance(event, Span))
        assert sent == text[:at].rstrip()
    assert sent == text


@pytest.mark.parametrize("case", [case for case in CASES if "Paris" in case.text], ids=lambda case: case.format)
def test_calls_are_streamed(case: Case) -> None:
    """The name goes out before the arguments are there, and the arguments before they are complete."""
    calls = [item for item in case.expected if isinstance(item, Call)]
    if not calls or case.name in {"arguments first", "bare, arguments first", "call in thoughts"}:
        return
    parser = case.parser()
    before = joined(parser.feed(Piece(case.text[: case.text.index("Paris") + 3])))
    assert CallStart(calls[0].name, calls[0].id) in before
    fragments = [event.fragment for event in before if isinstance(event, CallArgs)]
    assert "".join(fragments).endswith("Par")


@pytest.mark.parametrize("format", ["hermes", "generic"])
@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ('{"name": "Ann", "age": 4}', '{"name": "Ann"'),
        ('{"names": []}', '{"names"'),
        ('{"name": "get_weather", "x": 1}', '{"name": "get_weather", "x"'),
        ("{1: 2}", "{1"),
    ],
)
def test_json_is_held_back_only_while_it_can_be_a_call(format: str, text: str, certain: str) -> None:
    parser = create_parser(format, "none", TOOLS)
    sent = ""
    for at, char in enumerate(text, 1):
        sent += "".join(event.text for event in parser.feed(Piece(char)) if isinstance(event, Span))
        if at > len(certain):
            assert sent == text[:at].rstrip()
    assert sent == text
