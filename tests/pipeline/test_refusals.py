"""The refusal stage in the local provider: additive, switched, only without tool calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.protocol import TokenDelta
from millstream.ir.deltas import Content, Delta, Finish, Refusal, ToolCallArgs, ToolCallStart, Usage
from millstream.ir.fold import Answer, collect
from millstream.pipeline.refusals import RefusalStage
from support.scripted_model import EOS, ask, engine, provider, run

NO = "I'm sorry, but I can't help with that."
IDS = [*NO.encode(), EOS]


def answer(ids: list[int], *, refusals: bool, cuts: list[int] | None = None) -> Answer:
    async def work() -> Answer:
        return await collect(await provider(engine(ids, cuts=cuts), refusals=refusals).stream(ask(n=2)))

    return run(work())


@given(st.lists(st.integers(0, len(IDS)), max_size=6))
def test_a_refusal_is_told_and_nothing_is_taken(cuts: list[int]) -> None:
    off, on = (answer(IDS, refusals=switch, cuts=cuts) for switch in (False, True))
    assert [choice.refusal for choice in off.choices] == [None, None]
    assert [choice.refusal for choice in on.choices] == [NO, NO]
    assert [choice.text for choice in on.choices] == [NO, NO] == [choice.text for choice in off.choices]
    assert on.usage == off.usage


def test_answers_are_none() -> None:
    assert answer([*b"Yes.", EOS], refusals=True).choices[0].refusal is None


class Played:
    """A decoder that says what it was told to."""

    finished = False

    def __init__(self, *deltas: Delta) -> None:
        self._deltas = deltas

    def feed(self, step: TokenDelta) -> list[Delta]:
        return list(self._deltas)


def test_calls_are_no_refusals() -> None:
    deltas: list[Delta] = [
        Content(NO),
        ToolCallStart(0, "c", "f"),
        ToolCallArgs(0, "{}"),
        Finish("tool_calls", Usage()),
    ]
    assert RefusalStage(Played(*deltas)).feed(TokenDelta("x")) == deltas
    plain: list[Delta] = [Content(NO), Finish("stop", Usage())]
    assert RefusalStage(Played(*plain)).feed(TokenDelta("x")) == [plain[0], Refusal(NO), plain[1]]
