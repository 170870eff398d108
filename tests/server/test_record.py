"""The record of an answer: it folds to the same, however late it is joined, and it is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from millstream.ir.deltas import Content, Delta, Finish, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.ir.fold import Answer, fold
from millstream.server.admin.record import DeltaRecord
from millstream.server.admin.wire import SURFACES
from millstream.surfaces.wire import WireOptions
from support.wire import answers


def plain(answer: Answer) -> Answer:
    """Without what a record leaves out."""
    choices = tuple(replace(choice, token_ids=(), logprobs=()) for choice in answer.choices)
    return replace(answer, choices=choices)


def recorded(deltas: list[Delta], joins: set[int], limit: int = 1 << 20) -> DeltaRecord:
    record = DeltaRecord(limit)
    for index, delta in enumerate(deltas):
        record.tail.append(delta)
        if index in joins:
            record.join()
    return record


@settings(max_examples=40)
@given(st.integers(1, 3).flatmap(lambda n: answers(choices=n)), st.sets(st.integers(0, 40)))
def test_it_folds_to_the_same(deltas: list[Delta], joins: set[int]) -> None:
    assert plain(fold(recorded(deltas, joins).deltas())) == plain(fold(deltas))


@settings(max_examples=40)
@given(answers(choices=1), st.sets(st.integers(0, 40)), st.integers(0, 40))
def test_what_is_taken_and_what_is_copied_goes_on(deltas: list[Delta], joins: set[int], cut: int) -> None:
    record = recorded(deltas[:cut], joins)
    twin = record.copy()
    taken = record.take()
    assert record.deltas() == []
    for each in (record, twin):
        each.tail += deltas[cut:]
    assert plain(fold(taken + record.deltas())) == plain(fold(deltas))
    assert plain(fold(twin.deltas())) == plain(fold(deltas))


def test_pieces_of_a_choice_are_joined_although_others_come_between() -> None:
    deltas: list[Delta] = [Content("a", 0), Content("x", 1), Content("b", 0), Content("y", 1)]
    assert recorded(deltas, {1}).deltas() == [Content("ab", 0), Content("xy", 1)]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.sets(st.integers(0, 30)))
def test_what_is_too_long_loses_its_beginning(sizes: list[int], joins: set[int]) -> None:
    pieces = [f"<{index}>" * size for index, size in enumerate(sizes)]
    deltas: list[Delta] = [Start(5), *(Content(piece) for piece in pieces), Finish("stop", Usage(5, 9))]
    record = recorded(deltas, joins, limit=1000)
    kept = record.deltas()
    text = "".join(pieces)
    answer = fold(kept)
    assert text.endswith(answer.choices[0].text)
    assert record.lost == (answer.choices[0].text != text)
    assert sum(64 + len(delta.text) for delta in kept if isinstance(delta, Content)) <= 1000
    assert (kept[0], kept[-1]) == (Start(5), Finish("stop", Usage(5, 9)))


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize(("calls", "kept"), [(5, True), (300, False)])
def test_calls_keep_their_beginnings_while_there_is_room(surface: str, calls: int, kept: bool) -> None:
    deltas: list[Delta] = [Start(5)]
    for index in range(calls):
        deltas += [ToolCallStart(index, f"call_{index}", "add"), ToolCallArgs(index, '{"text": "')]
        deltas += [ToolCallArgs(index, "x" * 300), ToolCallArgs(index, '"}')]
    deltas.append(Finish("tool_calls", Usage(5, 9)))
    record = recorded(deltas, set(range(0, len(deltas), 7)), limit=2000)
    left = record.deltas()
    assert record.lost
    assert [delta for delta in left if isinstance(delta, ToolCallStart)] == (
        [delta for delta in deltas if isinstance(delta, ToolCallStart)] if kept else []
    )
    assert isinstance(left[-1], Finish)
    # What is left is still a stream that can be written.
    encoder = SURFACES[surface].stream_encoder(WireOptions(model="m", stream=True))
    assert encoder.start() + b"".join(map(encoder.encode, left)) + encoder.end()
