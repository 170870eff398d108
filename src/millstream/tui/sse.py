"""Reading server-sent events from a server that may send anything."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator
from typing import NamedTuple

MAX_EVENT_CHARS = 16 * 1024 * 1024
"""Longest event that is read; a snapshot with ten thousand requests has 4 MB."""


class Event(NamedTuple):
    """``name``: its ``event`` field; ``message`` if it had none."""

    name: str
    data: str


class EventTooLong(Exception):
    """The stream holds an event, or a line, above `MAX_EVENT_CHARS`."""


class EventReader:
    """Events out of the bytes of a stream, however they are cut (WHATWG HTML, 9.2.6)."""

    def __init__(self, limit: int = MAX_EVENT_CHARS) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._limit = limit
        self._rest: list[str] = []
        self._rest_length = 0
        self._after_cr = False
        self._name = ""
        self._data: list[str] = []
        self._length = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that ``chunk`` completes. Raises `EventTooLong`."""
        text = self._decode(chunk)
        if self._after_cr and text:
            # The line ended with the CR; an LF that comes apart from it ends no second one.
            text, self._after_cr = text.removeprefix("\n"), False
        if text.endswith("\r"):
            self._after_cr = True
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if lines:
            # A long line comes in many chunks: they are joined once.
            lines[0] = "".join([*self._rest, lines[0]])
            self._rest.clear()
            self._rest_length = 0
        events = [event for line in lines if (event := self._line(line)) is not None]
        self._rest.append(rest)
        self._rest_length += len(rest)
        self._check()
        return events

    def _check(self) -> None:
        if self._length + self._rest_length > self._limit:
            raise EventTooLong

    def _line(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
            self._length += len(value)
            self._check()
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name, self._data
        self._name, self._data, self._length = "", [], 0
        return Event(name or "message", "\n".join(data)) if data else None


async def read_events(chunks: AsyncIterator[bytes], limit: int = MAX_EVENT_CHARS) -> AsyncIterator[Event]:
    """The events of a body. Raises `EventTooLong`, and what ``chunks`` raises."""
    reader = EventReader(limit)
    async for chunk in chunks:
        for event in reader.feed(chunk):
            yield event
