"""What drafts bring to one stream: the same answers with and without them, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.bench.errors import BenchError


class Answer(msgspec.Struct, frozen=True):
    """``accepted``: tokens of it that were drafted. ``seconds`` by the clock and of ``processor`` time, of the whole
    server, after the first token."""

    tokens: int
    accepted: int
    seconds: float
    processor: float

    @property
    def rate(self) -> float:
        """Tokens per second after the first."""
        return (self.tokens - 1) / self.seconds


class Turns(msgspec.Struct, frozen=True):
    """Answers with drafts and the same ones without, in pairs."""

    drafted: list[Answer]
    plain: list[Answer]

    @property
    def ratios(self) -> list[float]:
        """How many times as fast each pair's answer came with drafts."""
        return [plain.seconds / drafted.seconds for drafted, plain in zip(self.drafted, self.plain, strict=True)]

    @property
    def overall(self) -> float:
        """The same of all of them, one after the other."""
        return sum(each.seconds for each in self.plain) / sum(each.seconds for each in self.drafted)

    @property
    def processor(self) -> float:
        """The same by processor time."""
        return sum(each.processor for each in self.plain) / sum(each.processor for each in self.drafted)

    @property
    def accepted(self) -> float:
        """Part of the tokens that were drafted."""
        return sum(each.accepted for each in self.drafted) / sum(each.tokens for each in self.drafted)

    def line(self, name: str) -> str:
        """The result for a reader."""
        drafted, plain = (statistics.median(each.rate for each in answers) for answers in (self.drafted, self.plain))
        ratios = self.ratios
        return (
            f"{name}: {drafted:.1f} tokens/s with drafts, {plain:.1f} without (medians of {len(ratios)}); "
            f"{statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f}), in sum "
            f"{self.overall:.3f}, by processor time {self.processor:.3f}; {100 * self.accepted:.0f} % drafted"
        )


Ask = Callable[..., tuple[str, Answer]]
"""Asks a server: a prompt and fields of a chat request, ``speculation`` among them. Gives the text too."""


def measure_edit(ask: Ask, pairs: int) -> Turns:
    """An answer that repeats its prompt with a small change. Raises `BenchError` if drafts change the answer."""
    return _in_turns(ask, pairs, EDIT, lambda pair: {"temperature": 0.0, "max_tokens": 640})


def measure_other(ask: Ask, pairs: int) -> Turns:
    """Answers that hardly repeat anything, another one in each pair. Raises `BenchError` if drafts change one."""
    return _in_turns(ask, pairs, OTHER, lambda pair: {"temperature": 1.0, "seed": pair, "max_tokens": 320})


def _in_turns(ask: Ask, pairs: int, prompt: str, fields: Callable[[int], dict[str, Any]]) -> Turns:
    """Who is first changes from pair to pair."""
    turns = Turns([], [])
    for pair in range(pairs):
        found = {which: ask(prompt, speculation=which, **fields(pair)) for which in (pair % 2 == 0, pair % 2 == 1)}
        (text, drafted), (same, plain) = found[True], found[False]
        if text != same:
            raise BenchError("an answer with drafts is another one than without")
        turns.drafted.append(drafted)
        turns.plain.append(plain)
    return turns


OTHER = "Write a story about a storm at sea."

EDIT = """\
Rewrite this file. In it, rename the field `owner` of `Booking` to `person`, everywhere.

```python
\"\"\"Bookings of the meeting rooms of an office.\"\"\"

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Booking:
    room: str
    owner: str
    start: datetime
    end: datetime

    def overlaps(self, other: Booking) -> bool:
        return self.room == other.room and self.start < other.end and other.start < self.end


class RoomTaken(Exception):
    \"\"\"Somebody else has the room at that time.\"\"\"


class Calendar:
    def __init__(self, rooms: dict[str, int]) -> None:
        self.rooms = rooms
        self.bookings: list[Booking] = []

    def book(self, room: str, owner: str, start: datetime, minutes: int) -> Booking:
        if room not in self.rooms:
            raise KeyError(room)
        if minutes <= 0:
            raise ValueError("a booking must have a length")
        booking = Booking(room, owner, start, start + timedelta(minutes=minutes))
        for other in self.bookings:
            if booking.overlaps(other):
                raise RoomTaken(f"{other.owner} has {room} until {other.end:%H:%M}")
        self.bookings.append(booking)
        return booking

    def cancel(self, booking: Booking) -> None:
        self.bookings.remove(booking)

    def free_rooms(self, start: datetime, minutes: int, people: int) -> list[str]:
        end = start + timedelta(minutes=minutes)
        taken = {b.room for b in self.bookings if b.start < end and start < b.end}
        return [room for room, seats in self.rooms.items() if seats >= people and room not in taken]

    def hours_by_owner(self) -> dict[str, float]:
        hours: dict[str, float] = {}
        for booking in self.bookings:
            length = (booking.end - booking.start).total_seconds() / 3600
            hours[booking.owner] = hours.get(booking.owner, 0.0) + length
        return hours

    def report(self, day: datetime) -> str:
        lines = [f"Bookings of {day:%d %B %Y}"]
        for booking in sorted(self.bookings, key=lambda b: (b.start, b.room)):
            if booking.start.date() == day.date():
                lines.append(f"{booking.start:%H:%M}-{booking.end:%H:%M} {booking.room}: {booking.owner}")
        return "\\n".join(lines)
```"""
