"""A `Parser` made of a generator over a `Scanner`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Literal

from millstream.parsing.events import CallArgs, Event, Piece, Span
from millstream.parsing.scan.scanner import EndOfInput, Scanner, Steps


class Machine:
    """Drives one format's generator. Obeys the `Parser` contract.

    Args:
        steps: the format; it may let `EndOfInput` pass, and what it holds in ``scanner.content`` is flushed then.
    """

    def __init__(self, steps: Callable[[Scanner], Steps[None]]) -> None:
        self.scanner = Scanner()
        self._steps = steps(self.scanner)
        self._done = False
        self._resume()

    @property
    def inside_call(self) -> bool:
        """Whether all text fed so far ends within a call, so that markers of other formats mean nothing here."""
        return self.scanner.in_call

    def feed(self, piece: Piece) -> list[Event]:
        self.scanner.push(piece)
        self._resume()
        return self._drain()

    def finish(self) -> list[Event]:
        self.scanner.close()
        self._resume()
        return self._drain()

    def _resume(self) -> None:
        if self._done:
            return
        try:
            next(self._steps)
        except (StopIteration, EndOfInput):
            self._done = True
            if self.scanner.recording:
                self.scanner.reject()
            self.scanner.content.flush()

    def _drain(self) -> list[Event]:
        events, self.scanner.events = self.scanner.events, []
        return joined(events) if len(events) > 1 else events


def joined(events: Iterable[Event]) -> list[Event]:
    """Neighbours of one channel made one event, at a cost linear in their text."""
    out: list[Event] = []
    for kind, group in groupby(events, _kind):
        if kind == "call":
            out.extend(group)
        elif kind == "args":
            out.append(CallArgs("".join(event.fragment for event in group if isinstance(event, CallArgs))))
        else:
            out.append(Span("".join(event.text for event in group if isinstance(event, Span)), kind))
    return out


def _kind(event: Event) -> Literal["content", "reasoning", "args", "call"]:
    if isinstance(event, Span):
        return event.channel
    return "args" if isinstance(event, CallArgs) else "call"
