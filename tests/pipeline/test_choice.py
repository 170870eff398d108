"""The decoder of one choice against the plain reference: partition invariance, conservation, stop strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.protocol import SamplingParams, TokenDelta, TokenRequest
from millstream.engine.scripted import script
from millstream.ir.deltas import Content, Delta, Error, Finish, Start, Usage
from millstream.ir.fold import ChoiceAnswer, Text, Thinking, fold
from millstream.ir.request import Output, ToolCall
from millstream.parsing.events import CallArgs, CallEnd, CallStart, Event, Piece, Span
from millstream.parsing.stops import StopStrings
from millstream.parsing.tokens import TokenTable
from millstream.pipeline.calls import new_call_id, new_mistral_id
from millstream.pipeline.choice import ChoiceDecoder
from support.reference import answer, decoded
from support.scripted_model import EOS, THINK, TURN, UNTHINK, TinyTokenizer, alternatives
from support.strategies import cuts, stop_strings, tokens, two_cuts

TABLE = TokenTable(TinyTokenizer())
ALL = Output(logprobs=2, token_ids=True)


def decode(
    ids: Sequence[int],
    at: Iterable[int] | None,
    *,
    stops: Iterable[str] = (),
    stop_ids: Iterable[int] = (EOS, TURN),
    min_tokens: int = 0,
    max_tokens: int = 1000,
    **how: Any,
) -> list[Delta]:
    """Deltas for ``ids`` in steps that begin ``at`` these places, from an engine that obeys the request."""
    request = TokenRequest(
        "r", [1], SamplingParams(logprobs=2), max_tokens, min_tokens=min_tokens, stop_ids=tuple(stop_ids)
    )
    decoder = ChoiceDecoder(
        TABLE,
        prompt_tokens=5,
        stop=StopStrings(stops),
        stop_ids=frozenset(stop_ids),
        min_tokens=min_tokens,
        **{"output": ALL, **how},
    )
    steps = script(request, ids, cuts=at, alternatives=alternatives, cached_tokens=3)
    out = [delta for step in steps for delta in decoder.feed(step)]
    assert decoder.finished
    assert decoder.feed(steps[-1]) == []
    return out


def folded(deltas: list[Delta]) -> ChoiceAnswer:
    (choice,) = fold(deltas).choices
    return choice


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    ids = draw(tokens())
    text = "".join(char for char, _ in decoded(ids))
    how: dict[str, Any] = {
        "stops": draw(stop_strings(text)),
        "stop_ids": draw(st.sampled_from([(EOS, TURN), (), (EOS, TURN, ord("b"))])),
        "min_tokens": draw(st.sampled_from([0, 0, 1, 3])),
        "max_tokens": draw(st.sampled_from([1000, 1000, 4, 9])),
    }
    return ids, how


@given(cases(), st.data())
def test_any_cut_gives_the_reference_answer(case: tuple[list[int], dict[str, Any]], data: st.DataObject) -> None:
    ids, how = case
    expected = answer(ids, **how)
    whole = folded(decode(ids, (), **how))
    assert (whole.text, whole.stop_sequence, whole.finish_reason) == expected[:3]
    assert list(whole.token_ids) == expected.tokens
    assert [entry.token_id for entry in whole.logprobs] == expected.tokens
    assert [entry.logprob for entry in whole.logprobs] == [-0.5 - k for k in range(len(expected.tokens))]
    assert whole.usage == Usage(5, len(expected.tokens), 3)
    assert not any(stop in whole.text for stop in how["stops"]) or how["min_tokens"]
    assert folded(decode(ids, None, **how)) == whole
    assert folded(decode(ids, data.draw(cuts(len(ids))), **how)) == whole


@given(tokens(max_size=7), st.data())
def test_every_cut_into_up_to_three_steps(ids: list[int], data: st.DataObject) -> None:
    stops = data.draw(stop_strings("".join(char for char, _ in decoded(ids))))
    whole = folded(decode(ids, (), stops=stops))
    for at in two_cuts(len(ids)):
        assert folded(decode(ids, at, stops=stops)) == whole


@given(cases())
def test_what_deltas_carry_changes_nothing_else(case: tuple[list[int], dict[str, Any]]) -> None:
    ids, how = case
    plain = decode(ids, None, output=Output(), **how)
    full = folded(decode(ids, None, **how))
    assert all(not delta.token_ids and not delta.logprobs for delta in plain if isinstance(delta, Content | Finish))
    bare = folded(plain)
    assert (bare.text, bare.finish_reason, bare.usage) == (full.text, full.finish_reason, full.usage)


def test_one_content_delta_per_step_and_none_without_text() -> None:
    assert decode([*b"ab", *"€".encode(), EOS], (2, 3), output=Output()) == [
        Start(5, 3),
        Content("ab"),
        Content("€"),
        Finish("stop", Usage(5, 6, 3)),
    ]


def test_ids_of_held_tokens_come_with_the_text() -> None:
    deltas = decode([*"é".encode(), ord("<"), EOS], None, stops=["<<"], output=Output(token_ids=True))
    assert deltas[1:] == [
        Content("é", token_ids=(0xC3, 0xA9)),
        Content("<", token_ids=(ord("<"), EOS)),
        Finish("stop", Usage(5, 4, 3)),
    ]


def test_ids_without_text_come_with_the_finish() -> None:
    (_, finish) = decode([*b"<<a"], None, stops=["<<"], output=Output(token_ids=True))
    assert finish == Finish("stop", Usage(5, 2, 3), token_ids=(60, 60), stop_sequence="<<")


def test_logprobs_name_tokens_with_exact_bytes() -> None:
    (entry, _) = folded(decode([0xE2, EOS], None)).logprobs
    assert (entry.text, entry.bytes, entry.logprob) == ("\ufffd", b"\xe2", -0.5)
    assert [(top.text, top.bytes, top.logprob) for top in entry.top] == [("a", b"a", -0.25), ("b", b"b", -1.0)]


def test_logprobs_must_be_there_for_every_token() -> None:
    decoder = ChoiceDecoder(TABLE, prompt_tokens=1, output=ALL)
    with pytest.raises(ValueError, match="0 log probabilities for 1 tokens"):
        decoder.feed(TokenDelta("r", [97]))


def test_an_engine_error_ends_the_stream_after_the_text_of_its_step() -> None:
    decoder = ChoiceDecoder(TABLE, prompt_tokens=1)
    out = decoder.feed(TokenDelta("r", [97], finish="error", error="The engine died."))
    assert out == [Start(1), Content("a"), Error("The engine died.", "server_error", "engine_error", 503)]
    assert decoder.finished


def test_ignored_end_tokens_have_no_text() -> None:
    choice = folded(decode([97, EOS, 98, TURN, 99], None, stop_ids=(), max_tokens=5))
    assert (choice.text, choice.finish_reason, len(choice.token_ids)) == ("abc", "length", 5)


def test_a_text_token_as_stop_token_is_not_shown() -> None:
    choice = folded(decode([*b"abc"], None, stop_ids=[98]))
    assert (choice.text, choice.finish_reason, choice.stop_sequence, choice.token_ids) == ("a", "stop", None, (97, 98))


def test_the_limit_shows_what_was_held() -> None:
    choice = folded(decode([*b"a<<<"], None, stops=["<<<<"], max_tokens=3))
    assert (choice.text, choice.finish_reason) == ("a<<", "length")
    cut = folded(decode([97, 0xE2, 0x82, 0xAC], None, max_tokens=3))
    assert (cut.text, cut.finish_reason) == ("a\ufffd", "length")


class Tags:
    """A parser for the tests: control tokens open and close reasoning, ``{x}`` in the text is a call of tool x."""

    def __init__(self) -> None:
        self.thinking = False
        self.held = ""

    def feed(self, piece: Piece) -> list[Event]:
        if piece.special:
            self.thinking = piece.text == "<think>"
            return []
        if self.thinking:
            return [Span(piece.text, "reasoning")]
        events: list[Event] = []
        for char in piece.text:
            if char == "{" or self.held:
                self.held += char
                if char == "}":
                    events += [CallStart(self.held[1:-1]), CallArgs("{}"), CallEnd()]
                    self.held = ""
            else:
                events.append(Span(char))
        return events

    def finish(self) -> list[Event]:
        held, self.held = self.held, ""
        return [Span(held)] if held else []


def ids() -> Callable[[], str]:
    """Call ids that a test can foretell."""
    numbers = count()
    return lambda: f"c{next(numbers)}"


SPOKEN = [THINK, *b"hm<", UNTHINK, *b"a<", *b"{f}", *b"<b{", EOS]


@given(cuts(len(SPOKEN)))
def test_a_parser_sits_between_control_tokens_and_stop_strings(at: tuple[int, ...]) -> None:
    choice = folded(decode(SPOKEN, at, stops=["<<", "m<"], parser=Tags(), call_id=ids()))
    assert choice.blocks == (Thinking("hm<"), Text("a<"), ToolCall("c0", "f", "{}"), Text("<b{"))
    assert choice.finish_reason == "tool_calls"
    assert list(choice.token_ids) == SPOKEN


@given(cuts(len(SPOKEN)))
def test_a_stop_string_ends_the_visible_text_behind_a_call(at: tuple[int, ...]) -> None:
    choice = folded(decode(SPOKEN, at, stops=["<b"], parser=Tags(), call_id=ids()))
    assert choice.blocks == (Thinking("hm<"), Text("a<"), ToolCall("c0", "f", "{}"))
    assert (choice.stop_sequence, choice.token_ids) == ("<b", tuple(SPOKEN[: SPOKEN.index(98) + 1]))


@given(cuts(len(SPOKEN)))
def test_reasoning_is_counted(at: tuple[int, ...]) -> None:
    choice = folded(decode(SPOKEN, at, parser=Tags(), call_id=ids()))
    assert choice.usage == Usage(5, len(SPOKEN), 3, reasoning_tokens=4)


@given(cuts(len(SPOKEN)))
def test_without_parallel_calls_the_first_call_ends_the_choice(at: tuple[int, ...]) -> None:
    spoken = [*SPOKEN[:-1], *b"{g}", EOS]
    choice = folded(decode(spoken, at, parser=Tags(), call_id=ids(), parallel_calls=False))
    assert choice.blocks == (Thinking("hm<"), Text("a<"), ToolCall("c0", "f", "{}"))
    assert (choice.finish_reason, choice.token_ids) == ("tool_calls", tuple(spoken[: spoken.index(ord("}")) + 1]))


def test_calls_alone_make_the_finish_tool_calls() -> None:
    assert folded(decode([*b"a{b", EOS], None, parser=Tags())).finish_reason == "stop"
    assert folded(decode([*b"{a}"], None, parser=Tags(), max_tokens=3)).finish_reason == "length"


class OwnIds(Tags):
    """A parser whose model names its calls, the same way each time."""

    def feed(self, piece: Piece) -> list[Event]:
        return [
            CallStart(event.name, "own") if isinstance(event, CallStart) else event for event in super().feed(piece)
        ]


def test_a_models_own_call_id_is_kept_unless_it_repeats_it() -> None:
    choice = folded(decode([*b"{a}{b}", EOS], None, parser=OwnIds(), call_id=ids()))
    assert [call.id for call in choice.tool_calls] == ["own", "c0"]


def test_minted_call_ids_differ() -> None:
    made = {new_call_id() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", one) for one in made)
    assert re.fullmatch(r"[A-Za-z0-9]{9}", new_mistral_id())


class Broken(Tags):
    """A parser with a fault, in the middle or at the end."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def feed(self, piece: Piece) -> list[Event]:
        if piece.text == self.at:
            raise ZeroDivisionError("secret")
        return super().feed(piece)

    def finish(self) -> list[Event]:
        raise ZeroDivisionError("secret")


@pytest.mark.parametrize("at", ["b", "nowhere"])
def test_a_parser_that_fails_ends_the_stream_with_an_error(at: str, caplog: pytest.LogCaptureFixture) -> None:
    out = decode([*b"ab", EOS], (), parser=Broken(at), output=Output())
    assert [type(delta) for delta in out] == [Start, Content, Error]
    assert isinstance(out[-1], Error)
    assert "secret" not in out[-1].message
    assert "the parser Broken failed" in caplog.text
