"""What flows between the stages of one choice: pieces of decoded text in, parsed events out.

A parser is a state machine over `Piece`s. However the same text is cut into pieces, the joined events are the same;
what it holds back is only text that can still become a marker of its format.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Decoded text. ``special``: the text is the name of one control token (``<|im_end|>``), which is never shown as
    such: a parser either knows it as a marker or drops it."""

    text: str
    special: bool = False


class Span(msgspec.Struct, frozen=True, gc=False):
    """Text of a channel: the visible answer or the reasoning."""

    text: str
    channel: Literal["content", "reasoning"] = "content"


class CallStart(msgspec.Struct, frozen=True, gc=False):
    """A tool call begins; its name is known. ``id`` is the model's own id for the call, if its format has one."""

    name: str
    id: str | None = None


class CallArgs(msgspec.Struct, frozen=True, gc=False):
    """A fragment of the open call's arguments: JSON text."""

    fragment: str


class CallEnd(msgspec.Struct, frozen=True, gc=False):
    """The model closed the open call. A call that the end of the output cuts off has none."""


Event = Span | CallStart | CallArgs | CallEnd


class Parser(Protocol):
    """One choice's parser. Fresh for every choice, fed in order, finished once."""

    def feed(self, piece: Piece) -> list[Event]:
        """Events that this piece settles."""
        ...

    def finish(self) -> list[Event]:
        """What was held back, walked through the same states as any other text."""
        ...
