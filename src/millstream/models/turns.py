"""Conversations in forms that strict chat templates take too.

Some templates insist on one system turn at the beginning, or on user and assistant in alternation; some know no system
turn at all. Clients send neither in that order: instructions arrive in the middle, and several user turns in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millstream.ir.request import Message
from millstream.ir.turns import merge_neighbours

_SYSTEM = ("system", "developer")


def simpler_forms(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The conversation, said with fewer liberties each time; nothing of its text is lost.

    1. One system turn, at the beginning; instructions that come later are part of the user's turns. Neighbours of one
       role are one turn.
    2. The same without a system turn: it is the beginning of the first user turn.
    """
    merged = _merged(messages)
    if merged != list(messages):
        yield merged
    if merged and merged[0].role in _SYSTEM:
        yield _merged([Message("user", merged[0].content), *merged[1:]])


def _merged(messages: Sequence[Message]) -> list[Message]:
    begin = next((k for k, message in enumerate(messages) if message.role not in _SYSTEM), len(messages))
    later = (Message("user", message.content) if message.role in _SYSTEM else message for message in messages[begin:])
    return merge_neighbours([*messages[:begin], *later])
