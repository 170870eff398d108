"""The reader that format parsers are written against.

A format is a generator function over a `Scanner`: it asks for what it needs ("text up to this marker", "a JSON value")
and the scanner suspends it while the answer depends on input that has not come. Every operation gives the same joined
result however the input is cut, so every format built from them does too.

Control tokens: a piece with ``special`` set acts as a marker where the format waits for one, and vanishes elsewhere.
It interrupts text: no marker, word or JSON string reaches across it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

from millstream.parsing.events import CallArgs, CallEnd, CallStart, Event, Piece, Span
from millstream.parsing.scan.channel import TextChannel
from millstream.parsing.scan.markers import Markers

T = TypeVar("T")
Steps = Generator[None, None, T]
Sink = Callable[[str], None]

_SPACE = re.compile(r"\s*")


class Reader(Protocol):
    """Reads something whose end it recognises itself, such as a JSON value."""

    done: bool

    def read(self, text: str, start: int) -> int:
        """Reads on from ``start``; returns where it stopped: at its end, at what may be a marker, or at the end of
        ``text``."""
        ...

    def no_marker(self) -> None:
        """Where it stopped there is no marker: it may read on."""
        ...


class EndOfInput(Exception):
    """The output ended while a parser waited for more of it."""


def discard(text: str) -> None:
    """A sink for markup."""


class Scanner:
    """Input, cursor and output of one parser.

    Args:
        on_special: is told of control tokens that stand in text and are no markers.

    Attributes:
        content: where visible text goes.
        in_call: whether the cursor is inside a call, or what looks like one so far.
        closed: whether no more input will come.
        work: characters looked at so far; the cost that tests hold against the length of the input.
    """

    def __init__(self, on_special: Sink = discard) -> None:
        self._on_special = on_special
        self.content = TextChannel(lambda text: self.emit(Span(text)))
        self.events: list[Event] = []
        self.in_call = False
        self.work = 0
        self._text = ""
        self._at = 0
        self._special: str | None = None
        self.marker_was_special = False
        self.closed = False
        self._record: list[str] | None = None

    # Input and output

    def push(self, piece: Piece) -> None:
        """Adds input behind what is unread. A special piece must be read before the next piece comes."""
        if piece.special:
            self._special = piece.text
            return
        unread = self._text[self._at :]
        self.work += len(unread)
        self._text, self._at = unread + piece.text, 0

    def close(self) -> None:
        """No more input."""
        self.closed = True

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def start_call(self, name: str, id: str | None = None) -> None:
        """A call is certain: what was recorded of it is markup, and so is the space around it."""
        self._record = None
        self.content.markup()
        self.emit(CallStart(name, id))

    def args(self, fragment: str) -> None:
        if fragment:
            self.emit(CallArgs(fragment))

    def end_call(self) -> None:
        self.emit(CallEnd())

    # A span that may or may not be a call

    def record(self, opening: str = "") -> None:
        """From here on what is read is kept, in case it has to be given back as text, and before it the marker
        ``opening`` that was read last (unless it was a control token)."""
        self._record = [] if self.marker_was_special else [opening]

    def reject(self) -> None:
        """What was recorded is no call: it is visible text as the model wrote it."""
        kept, self._record = self._record or [], None
        self.content.write("".join(kept))

    def forget(self) -> None:
        """What was recorded is markup."""
        self._record = None

    def write_marker(self, marker: str) -> None:
        """The marker that was read last marks nothing here: visible text, unless it was a control token."""
        if not self.marker_was_special:
            self.content.write(marker)

    @property
    def recording(self) -> bool:
        return self._record is not None

    # Reading

    def wait(self) -> Steps[None]:
        """Suspends until there is more input.

        Raises:
            EndOfInput: there will be none.
        """
        if self.closed:
            raise EndOfInput
        yield

    def take(self, count: int) -> str:
        """Reads ``count`` characters that are there."""
        text = self._text[self._at : self._at + count]
        self._at += count
        self.work += count
        if self._record is not None and text:
            self._record.append(text)
        return text

    def peek(self) -> Steps[str]:
        """The next character, unread; empty at a control token.

        Raises:
            EndOfInput: there is none.
        """
        while self._at == len(self._text):
            if self._special is not None:
                return ""
            yield from self.wait()
        return self._text[self._at]

    def space(self) -> Steps[str]:
        """Reads white space and returns it."""
        if self._at < len(self._text) and not self._text[self._at].isspace():
            return ""
        parts: list[str] = []
        while True:
            found = _SPACE.match(self._text, self._at)
            parts.append(self.take(found.end() - self._at if found else 0))
            if self._at < len(self._text) or self._special is not None or self.closed:
                return "".join(parts)
            yield

    def first(self, markers: Markers) -> Steps[str]:
        """The first character of the visible text, unread, past white space (which is text) and control tokens; empty
        at a control token of ``markers``.

        Raises:
            EndOfInput: there is none.
        """
        while True:
            self.content.write((yield from self.space()))
            char = yield from self.peek()
            if char or not self.drop_special(markers):
                return char

    def run(self, pattern: re.Pattern[str]) -> Steps[str]:
        """Reads the longest run of characters that ``pattern`` (of the form ``[…]*``) allows."""
        parts: list[str] = []
        while True:
            found = pattern.match(self._text, self._at)
            parts.append(self.take(found.end() - self._at if found else 0))
            if self._at < len(self._text) or self._special is not None or self.closed:
                return "".join(parts)
            yield

    def accept(self, markers: Markers) -> Steps[str | None]:
        """Reads one of the markers if it is what comes next, as text or as a control token."""
        found = yield from self.ahead(markers)
        if found is not None:
            if self._at == len(self._text) and found == self._special:
                self._special = None
                self.marker_was_special = True
            else:
                self.take(len(found))
                self.marker_was_special = False
        return found

    def ahead(self, markers: Markers) -> Steps[str | None]:
        """The marker that comes next, unread.

        Raises:
            EndOfInput: within a call the output ended here, or in what could have become one of the markers.
        """
        while True:
            if self._at == len(self._text) and self._special in markers.literals:
                return self._special
            if self._special is not None or not markers.open_at(self._text, self._at):
                return markers.match(self._text, self._at)
            if self.closed and not self.in_call:
                return markers.match(self._text, self._at)
            if self.closed:
                self.take(len(self._text) - self._at)
                raise EndOfInput
            yield

    def until(self, markers: Markers, sink: Sink, *, awaited: bool = False) -> Steps[str]:
        """Passes text on up to the next marker, reads the marker and returns it.

        Args:
            awaited: one of the markers must come, so the beginning of one at the end of input is no text.

        Raises:
            EndOfInput: it never came; all text was passed on.
        """
        while True:
            found = markers.find(self._text, self._at)
            settled = self._special is not None or self.closed
            if found is not None and not settled and markers.open_at(self._text, found.start()):
                sink(self.take(found.start() - self._at))
                yield
                continue
            if found is not None:
                sink(self.take(found.start() - self._at))
                self.marker_was_special = False
                return self.take(len(found.group()))
            if self._special is not None:
                sink(self.take(len(self._text) - self._at))
                special, self._special = self._special, None
                if special in markers:
                    self.marker_was_special = True
                    return special
                self._on_special(special)
                continue
            if self.closed:
                end = markers.settled(self._text, self._at) if awaited else len(self._text)
                sink(self.take(end - self._at))
                raise EndOfInput
            sink(self.take(markers.settled(self._text, self._at) - self._at))
            yield

    @property
    def at_edge(self) -> bool:
        """After `space` or `run`: whether text ends here, at a control token or at the end of input."""
        return self._at == len(self._text)

    def drop_special(self, stops: Markers) -> bool:
        """At a control token: drops it unless it is one of ``stops``. Whether one was dropped."""
        if self._at < len(self._text) or self._special is None or self._special in stops:
            return False
        self._special = None
        return True

    def scan(self, reader: Reader, sink: Sink, stops: Markers) -> Steps[bool]:
        """Lets ``reader`` read up to its own end and passes on what it reads.

        Returns:
            True: the reader is done. False: one of ``stops`` comes next, as a control token or as text where the reader
            allows for one.

        Raises:
            EndOfInput: the input ended first.
        """
        while not reader.done:
            if self._at < len(self._text):
                sink(self.take(reader.read(self._text, self._at) - self._at))
                if reader.done or self._at == len(self._text):
                    continue
                if (yield from self.ahead(stops)) is not None:
                    return False
                reader.no_marker()
            elif self._special is not None:
                if not self.drop_special(stops):
                    return False
            else:
                yield from self.wait()
        return True
