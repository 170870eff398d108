"""Runs parsers over text cut in every way that a test asks for."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from millstream.ir.request import Tool
from millstream.parsing.events import CallArgs, CallEnd, CallStart, Event, Parser, Piece, Span
from millstream.parsing.registry import create_parser
from millstream.parsing.scan.machine import joined

TOOLS = (
    Tool(
        "get_weather",
        description="Current weather of a city.",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "precise": {"type": "boolean"},
            },
            "required": ["city"],
        },
    ),
    Tool(
        "write_file",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "content": {"type": "string"},
                "mode": {"type": ["string", "null"]},
                "options": {"type": "object"},
            },
        },
    ),
    Tool("get_time"),
)


@dataclass(frozen=True)
class Call:
    """A call as a parser reports it. ``complete``: whether its end was reported."""

    name: str
    arguments: str
    id: str | None = None
    complete: bool = True


@dataclass(frozen=True)
class Thought:
    text: str


Item = str | Thought | Call


@dataclass(frozen=True)
class Case:
    """An output and what it means. Markers in ``quoted`` stand in the text as text, not as markup."""

    format: str
    name: str
    text: str
    expected: Sequence[Item]
    reasoning: str = "none"
    opened: bool = False
    tools: Sequence[Tool] = TOOLS
    quoted: bool = False
    markers: Sequence[str] = field(default=())

    def parser(self) -> Parser:
        return create_parser(self.format, self.reasoning, self.tools, reasoning_opened=self.opened)


def run(parser: Parser, pieces: Iterable[str | Piece]) -> list[Event]:
    """All events of an output, neighbours of one kind joined."""
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece if isinstance(piece, Piece) else Piece(piece))
    return joined(events + parser.finish())


def fold(events: Iterable[Event]) -> list[Item]:
    """What events mean, and a check of their order: arguments and ends only within a call."""
    items: list[Item] = []
    open_call = False
    for event in events:
        match event:
            case Span(text, "content"):
                assert text
                open_call = False
                items.append(text)
            case Span(text, _):
                assert text
                open_call = False
                items.append(Thought(text))
            case CallStart(name, id):
                assert name
                open_call = True
                items.append(Call(name, "", id, complete=False))
            case CallArgs(fragment):
                assert open_call
                assert fragment
                last = items[-1]
                assert isinstance(last, Call)
                items[-1] = Call(last.name, last.arguments + fragment, last.id, complete=False)
            case CallEnd():
                assert open_call
                open_call = False
                last = items[-1]
                assert isinstance(last, Call)
                items[-1] = Call(last.name, last.arguments, last.id)
    return items


def two_cuts(text: str) -> Iterator[list[str]]:
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]


def random_cuts(text: str, count: int, seed: int) -> Iterator[list[str]]:
    generator = random.Random(seed)
    for _ in range(count):
        cuts = generator.randint(1, max(1, len(text) // 3))
        at = sorted(generator.randint(0, len(text)) for _ in range(cuts))
        yield [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]


def with_special(text: str, markers: Sequence[str]) -> list[Piece]:
    """The text with every marker as a control token."""
    pattern = re.compile("(" + "|".join(re.escape(marker) for marker in markers) + ")")
    return [Piece(part, special=part in markers) for part in pattern.split(text) if part]


def assert_same_however_cut(make: Callable[[], Parser], text: str, *, seed: int = 0) -> list[Event]:
    """The partition oracle; returns the events of the whole."""
    whole = run(make(), [text])
    assert run(make(), list(text)) == whole
    for pieces in two_cuts(text):
        assert run(make(), pieces) == whole, pieces
    for pieces in random_cuts(text, 200, seed):
        assert run(make(), pieces) == whole, pieces
    return whole
