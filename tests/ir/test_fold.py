"""Law 3: what is not streamed is the fold of what is."""

from __future__ import annotations

from hypothesis import given

from millstream.ir.deltas import (
    Content,
    Delta,
    Error,
    Finish,
    Reasoning,
    Refusal,
    Start,
    TokenLogprob,
    ToolCallArgs,
    ToolCallStart,
    Usage,
)
from millstream.ir.fold import Folder, Text, Thinking, collect, fold
from millstream.ir.guard import guard
from millstream.ir.request import ToolCall
from support.scripted_model import run
from support.sources import Source
from support.strategies import orderly


def test_blocks_keep_their_order_and_neighbours_merge() -> None:
    answer = fold(
        [
            Start(7, 3),
            Reasoning("hm", token_ids=(1,)),
            Reasoning("m", token_ids=(2,)),
            Content("", token_ids=(3,)),
            Content("a"),
            Content("b"),
            ToolCallStart(0, "c0", "f", token_ids=(4,)),
            ToolCallArgs(0, "{"),
            ToolCallStart(1, "c1", "g"),
            ToolCallArgs(1, "[]"),
            ToolCallArgs(0, "}", token_ids=(5,)),
            Content("c"),
            Finish("tool_calls", Usage(7, 6, 3, 2), token_ids=(6,)),
        ]
    )
    (choice,) = answer.choices
    assert choice.blocks == (
        Thinking("hmm"),
        Text("ab"),
        ToolCall("c0", "f", "{}"),
        ToolCall("c1", "g", "[]"),
        Text("c"),
    )
    assert (choice.text, choice.reasoning, len(choice.tool_calls)) == ("abc", "hmm", 2)
    assert choice.token_ids == (1, 2, 3, 4, 5, 6)
    assert choice.finish_reason == "tool_calls"
    assert answer.usage == choice.usage == Usage(7, 6, 3, 2)


def test_usage_counts_the_prompt_once_and_sums_completions() -> None:
    deltas = [Start(5, 0), Finish("stop", Usage(5, 2, 4), 1), Finish("stop", Usage(5, 3, 0, 1), 0)]
    assert fold(deltas).usage == Usage(5, 5, 0, 1)
    assert fold(deltas[1:]).usage == Usage(5, 5, 0, 1)
    assert [choice.index for choice in fold(deltas).choices] == [0, 1]


def test_an_error_leaves_what_there_was() -> None:
    answer = fold([Start(5), Content("a", 1), Error("broken")])
    assert answer.error == Error("broken")
    assert answer.usage == Usage(5)
    (choice,) = answer.choices
    assert (choice.index, choice.text, choice.finish_reason, choice.usage) == (1, "a", None, None)


def test_refusal_logprobs_and_stop_sequence() -> None:
    one, two = TokenLogprob(1, "a", b"a", -1.0), TokenLogprob(2, "b", b"b", -2.0)
    (choice,) = fold(
        [Content("a", logprobs=(one,)), Refusal("a"), Finish("stop", Usage(), logprobs=(two,), stop_sequence="b")]
    ).choices
    assert (choice.refusal, choice.stop_sequence, choice.logprobs) == ("a", "b", (one, two))


@given(orderly())
def test_collect_is_the_fold(items: list[Delta]) -> None:
    assert run(collect(guard(Source(items), choices=2))) == fold(items)


@given(orderly())
def test_the_fold_is_incremental_and_looking_changes_nothing(items: list[Delta]) -> None:
    folder = Folder()
    for at, delta in enumerate(items, 1):
        folder.feed(delta)
        assert folder.answer() == fold(items[:at])


@given(orderly())
def test_the_fold_conserves_ids_and_text(items: list[Delta]) -> None:
    for choice in fold(items).choices:
        mine = [delta for delta in items if not isinstance(delta, Start | Error) and delta.choice == choice.index]
        assert choice.token_ids == tuple(k for delta in mine for k in getattr(delta, "token_ids", ()))
        assert choice.text == "".join(delta.text for delta in mine if isinstance(delta, Content))
