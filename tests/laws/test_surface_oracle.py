"""Law 3: the same conversation, on every chat surface, streamed and not, is the same answer."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.protocol import TokenDelta, TokenRequest
from millstream.engine.scripted import Step, script
from millstream.ir.deltas import Delta, Finish, Refusal
from millstream.ir.guard import guard
from millstream.ir.provider import DeltaStream
from millstream.ir.request import Request
from support.conversation import SURFACES, TOOLS, Played
from support.readers import Seen
from support.scripted_model import EOS, TinyTokenizer, alternatives

TEXTS = st.text('ab<>é€😀\n \\"{}', max_size=8)
ARGUMENTS = st.dictionaries(st.sampled_from(["city", "é", "n"]), st.none() | st.booleans() | TEXTS, max_size=2)


@st.composite
def calls(draw: st.DrawFn) -> str:
    wire = {"name": draw(st.sampled_from(TOOLS)), "arguments": draw(ARGUMENTS)}
    text = json.dumps(wire, ensure_ascii=draw(st.booleans()))
    return f"<tool_call>\n{text}\n</tool_call>"


SEGMENTS = st.one_of(TEXTS, TEXTS.map(lambda text: f"<think>{text}</think>"), calls(), st.sampled_from(["STOP", "ST"]))


@dataclass
class Case:
    """What the model says, how it comes, and what was asked."""

    tokens: list[int]
    cuts: tuple[int, ...] | None
    fails_after: int | None
    fields: dict[str, Any]

    def plan(self, request: TokenRequest) -> list[Step]:
        steps: list[Step] = []
        played = script(request, self.tokens, cuts=self.cuts, alternatives=alternatives, cached_tokens=3)
        for number, step in enumerate(played):
            if number == self.fails_after:
                steps.append(TokenDelta("", finish="error", error="The engine died."))
                break
            steps.append(step)
        return steps


@st.composite
def cases(draw: st.DrawFn, tokenizer: TinyTokenizer) -> Case:
    said = "".join(draw(st.lists(SEGMENTS, max_size=5)))
    tokens = tokenizer.encode(said)
    cut = draw(st.none() | st.sets(st.integers(1, max(1, len(tokens)))).map(lambda chosen: tuple(sorted(chosen))))
    fails = draw(st.sampled_from([None, None, None, 0, 1, 5]))
    fields = {
        "tools": draw(st.booleans()),
        "tool_choice": draw(st.sampled_from(["auto", "auto", "none"])),
        "parallel": draw(st.booleans()),
        "stop": draw(st.sampled_from([(), (), ("STOP",), ("ab", "STOP")])),
        "logprobs": draw(st.booleans()),
        "store": draw(st.booleans()),
        "max_tokens": draw(st.just(4000) | st.integers(1, max(1, len(tokens)))),
    }
    return Case([*tokens, EOS], cut, fails, fields)


PLAIN = Played()
SPECIAL = Played(TinyTokenizer())


def everywhere(played: Played, case: Case) -> dict[tuple[str, bool], Seen]:
    async def work() -> dict[tuple[str, bool], Seen]:
        return {
            (surface, stream): await played.ask(surface, stream=stream, **case.fields)
            for surface in SURFACES
            for stream in (False, True)
        }

    played.plan = case.plan
    return asyncio.run(work())


def calls_of(seen: Seen, *, whole: bool) -> list[tuple[str, Any]]:
    """Calls to compare: arguments by value, or as they stand if they are cut (``whole``: then not at all, as Messages
    shows an object in any case)."""
    out: list[tuple[str, Any]] = []
    for name, arguments in seen.calls:
        try:
            out.append((name, json.loads(arguments)))
        except ValueError:
            out.append((name, None if whole else arguments))
    return out


def check(seen: dict[tuple[str, bool], Seen]) -> None:
    first = seen["chat", True]
    if first.finish == "error":
        check_failed(seen)
        return
    cut = any(value is None for _, value in calls_of(first, whole=True))
    for (surface, stream), one in seen.items():
        where = f"{surface} stream={stream}"
        told = (one.text, one.reasoning, one.finish, one.usage, one.refused)
        assert told == (first.text, first.reasoning, first.finish, first.usage, first.refused), where
        if surface == "messages" and not stream and cut:
            assert [name for name, _ in one.calls] == [name for name, _ in first.calls], where
        else:
            assert calls_of(one, whole=False) == calls_of(first, whole=False), where
    assert seen["responses", True].parts == seen["responses", False].parts
    if not cut:
        parts = [seen[surface, stream].parts for surface in ("responses", "messages") for stream in (False, True)]
        assert all(one == parts[0] for one in parts)
    check_logprobs(seen, first)


def check_logprobs(seen: dict[tuple[str, bool], Seen], first: Seen) -> None:
    assert seen["chat", False].logprobs == first.logprobs
    assert seen["responses", False].logprobs == seen["responses", True].logprobs
    if first.text and not first.calls and not first.reasoning:
        assert seen["responses", True].logprobs == first.logprobs


def check_failed(seen: dict[tuple[str, bool], Seen]) -> None:
    """Every surface tells the failure; what was said before it is the same in all streams."""
    first = seen["chat", True]
    for (surface, stream), one in seen.items():
        assert (one.finish, one.error) == ("error", first.error), (surface, stream)
        assert one.usage is None
        if stream:
            assert (one.text, one.reasoning) == (first.text, first.reasoning), surface
            assert [call[0] for call in one.calls] == [call[0] for call in first.calls]


@given(cases(PLAIN.tokenizer))
@settings(max_examples=settings.default.max_examples)
def test_every_surface_tells_the_same(case: Case) -> None:
    check(everywhere(PLAIN, case))


@given(cases(SPECIAL.tokenizer))
@settings(max_examples=settings.default.max_examples // 2)
def test_every_surface_tells_the_same_where_tags_are_control_tokens(case: Case) -> None:
    check(everywhere(SPECIAL, case))


class Refusing:
    """A provider that finds every answer without calls a refusal."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def models(self) -> Any:
        return self._inner.models()

    async def stream(self, request: Request) -> DeltaStream:
        return guard(self._marked(await self._inner.stream(request)))

    async def _marked(self, stream: DeltaStream) -> Any:
        text = ""
        delta: Delta
        async for delta in stream:
            if isinstance(delta, Finish) and text:
                yield Refusal(text)
            text += getattr(delta, "text", "")
            yield delta


def test_a_refusal_is_told_by_every_surface_and_takes_no_text_away() -> None:
    played = Played(wrap=Refusing)
    case = Case([*played.tokenizer.encode("I cannot <b>do that."), EOS], None, None, {})
    seen = everywhere(played, case)
    check(seen)
    assert all(one.refused and one.text == "I cannot <b>do that." for one in seen.values())
