"""A `Parser` made of a generator over a `Scanner`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
        return joined(events)


def joined(events: Iterable[Event]) -> list[Event]:
    """Neighbours of one channel made one event."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Span) and isinstance(last, Span) and event.channel == last.channel:
            out[-1] = Span(last.text + event.text, event.channel)
        elif isinstance(event, CallArgs) and isinstance(last, CallArgs):
            out[-1] = CallArgs(last.fragment + event.fragment)
        else:
            out.append(event)
    return out
