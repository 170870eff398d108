"""Calls whose parameters stand in tags, one by one, as plain text.

Nothing is escaped in these formats, so a value may hold the text of its own closing tag. A closing tag therefore counts
only if what may follow it does follow: another tag of the call, or the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import EndOfInput, Scanner, Sink, Steps
from millstream.parsing.tools.format import Toolbox
from millstream.parsing.tools.shared.arguments import ArgumentsWriter, TextValue
from millstream.parsing.tools.shared.marked_json import marked_calls
from millstream.parsing.tools.shared.outer import text_and_calls

NAME = re.compile(r'[^\s<>"{}]*')


@dataclass(frozen=True)
class Tags:
    """The markup of one format.

    Attributes:
        wrap: opening and closing tag around all calls. Calls without it are recognised too, and so is a JSON object in
            it, which models fall back to that have learned both.
        call_open, call_name_end, call_close: ``<function=NAME>`` … ``</function>``.
        key_open, key_ends, key_close: ``<parameter=NAME>`` … ``</parameter>``; ``key_ends`` maps the ways in which the
            opening tag ends to whether it says that the value is a string (None: it does not say).
        newlines: whether one newline on either side of a value belongs to the markup.
    """

    wrap: tuple[str, str]
    call_open: str
    call_name_end: str
    call_close: str
    key_open: str
    key_ends: dict[str, bool | None]
    key_close: str
    newlines: bool = False


class TaggedCalls:
    """The parser of a format described by `Tags`."""

    def __init__(self, tags: Tags, tools: Toolbox) -> None:
        self._tags = tags
        self._tools = tools
        self._wrap = Markers(tags.wrap)
        self._wrap_close = Markers([tags.wrap[1]])
        self._call_open = Markers([tags.call_open])
        self._call_name_end = Markers([tags.call_name_end])
        self._key_open = Markers([tags.key_open])
        self._key_ends = Markers(tags.key_ends)
        self._key_close = Markers([tags.key_close])
        self._call_close = Markers([tags.call_close])
        self._after_value = Markers([tags.key_open, tags.call_close, *tags.wrap, tags.call_open])

    def steps(self, scanner: Scanner) -> Steps[None]:
        """The whole output."""
        return text_and_calls(
            scanner,
            Markers([self._tags.wrap[0], self._tags.call_open]),
            self._wrap_close,
            lambda marker: self._call(scanner, marker),
        )

    def _call(self, scanner: Scanner, marker: str) -> Steps[bool]:
        """From the opening tag to behind the closing one. False: it is no call."""
        if marker == self._tags.wrap[0]:
            marker += yield from scanner.space()
            if (yield from scanner.peek()) == "{":
                return (yield from marked_calls(scanner, marker, self._wrap, self._wrap_close))
            yield from scanner.accept(self._call_open)
        name = yield from scanner.run(NAME)
        if not name or (yield from scanner.accept(self._call_name_end)) is None:
            scanner.reject()
            return False
        scanner.start_call(name)
        arguments = ArgumentsWriter(scanner.args, self._tools.properties(name))
        yield from scanner.space()
        while (yield from scanner.accept(self._key_open)) is not None:
            if not (yield from self._parameter(scanner, arguments)):
                break
            yield from scanner.space()
        arguments.close()
        scanner.end_call()
        if scanner.recording:
            scanner.reject()
        else:
            yield from scanner.accept(self._call_close)
            yield from scanner.space()
        return True

    def _parameter(self, scanner: Scanner, arguments: ArgumentsWriter) -> Steps[bool]:
        scanner.record(self._tags.key_open)
        try:
            key = yield from scanner.run(NAME)
            end = yield from scanner.accept(self._key_ends)
        except EndOfInput:
            scanner.forget()
            raise
        if not key or end is None:
            return False
        scanner.forget()
        value = arguments.value(key, string=self._tags.key_ends[end])
        sink: Sink = _InnerLines(value.feed).feed if self._tags.newlines else value.feed
        yield from tagged_value(scanner, value, sink, self._key_close, self._after_value)
        return True


def tagged_value(scanner: Scanner, value: TextValue, sink: Sink, close: Markers, after: Markers) -> Steps[None]:
    """Reads a value up to its closing tag, which must have one of ``after`` or a control token behind it.

    Args:
        sink: takes the text; it ends up in ``value``.

    Raises:
        EndOfInput: the input ended within the value, or where that is not certain yet.
    """
    try:
        while True:
            marker = yield from scanner.until(close, sink, awaited=True)
            gap = yield from scanner.space()
            if (yield from scanner.ahead(after)) is not None:
                break
            if scanner.at_edge:
                break
            sink(marker + gap)
    except EndOfInput:
        value.cut()
        raise
    value.end()


class _InnerLines:
    """Drops one newline at the start and one at the end."""

    def __init__(self, sink: Callable[[str], None]) -> None:
        self._sink = sink
        self._begun = False
        self._newline_held = False

    def feed(self, text: str) -> None:
        if not text:
            return
        if not self._begun:
            self._begun = True
            text = text.removeprefix("\n")
        if self._newline_held:
            text = "\n" + text
        self._newline_held = text.endswith("\n")
        self._sink(text[:-1] if self._newline_held else text)
