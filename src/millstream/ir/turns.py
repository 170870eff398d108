"""Turns in the order and number that models are trained on: neighbours of one role, results of calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from millstream.ir.request import Message

GAP = "\n\n"
"""Between texts that one turn is made of, where the model did not write them itself."""

_SIDES = {"developer": "system"}


def join_texts(texts: Iterable[str]) -> str:
    """Texts with a gap between them; empty ones leave none."""
    return GAP.join(text for text in texts if text)


def merge_neighbours(messages: Iterable[Message]) -> list[Message]:
    """The conversation with runs of one role merged (developer counts as system; results of tools stay apart)."""
    merged: list[Message] = []
    for side, run in groupby(messages, key=lambda message: _SIDES.get(message.role, message.role)):
        turns = list(run)
        merged += turns if side == "tool" or len(turns) == 1 else [_join(turns)]
    return merged


def results_in_call_order(messages: Iterable[Message]) -> list[Message]:
    """The conversation with neighbouring results of tools in the order of their calls.

    Clients that run calls at once send results as they come, each with the id of its call. Most templates show no ids:
    there the order alone tells which result is whose. A result of no known call goes behind the others.
    """
    ordered: list[Message] = []
    places: dict[str | None, int] = {}
    count = 0
    for role, run in groupby(messages, key=lambda message: message.role):
        turns = list(run)
        if role == "tool":
            turns.sort(key=lambda turn: places.get(turn.tool_call_id, count))
        for call in (call for turn in turns for call in turn.tool_calls):
            places[call.id] = count  # an id may be used again: its last call is meant
            count += 1
        ordered += turns
    return ordered


def _join(turns: Sequence[Message]) -> Message:
    return Message(
        role=turns[0].role,
        content=join_texts(turn.content for turn in turns),
        reasoning=join_texts(turn.reasoning or "" for turn in turns) or None,
        tool_calls=tuple(call for turn in turns for call in turn.tool_calls),
        name=turns[0].name,
    )
