"""What the scripted model says to the page, and gates at which it waits for the test."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

from millstream.ir.deltas import Content, Finish, Reasoning, Start, ToolCallArgs, ToolCallStart, Usage
from millstream.ir.request import Request
from support.provider import ScriptedProvider, Step

Script = Callable[[Request], Iterator[Step]]


class Gate:
    """The model says nothing more until it is opened."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        self._event.set()

    def wait(self) -> Iterator[Step]:
        until = time.monotonic() + 60
        while not self._event.is_set() and time.monotonic() < until:
            yield 0.01


def saying(text: str, *, gate: Gate | None = None, then: str = "") -> Script:
    """A text in small pieces, then another one behind a gate."""

    def script(request: Request) -> Iterator[Step]:
        yield Start(prompt_tokens=37, cached_tokens=12)
        for at in range(0, len(text), 7):
            yield Content(text[at : at + 7])
        if gate is not None:
            yield from gate.wait()
        if then:
            yield Content(then)
        yield Finish("stop", Usage(37, 20, 12, 0))

    return script


def thinking(thought: str, text: str, *, gate: Gate | None = None) -> Script:
    def script(request: Request) -> Iterator[Step]:
        yield Start(prompt_tokens=5)
        yield Reasoning(thought)
        if gate is not None:
            yield from gate.wait()
        yield Content(text)
        yield Finish("stop", Usage(5, 30, 0, 21))

    return script


def calling(*calls: tuple[str, str], then: str = "Done.") -> Script:
    """Calls (names and arguments); once the last turn is a tool's, a text."""

    def script(request: Request) -> Iterator[Step]:
        yield Start(prompt_tokens=5)
        if request.messages[-1].role == "tool":  # type: ignore[union-attr]
            yield Content(then)
            yield Finish("stop", Usage(5, 2, 0, 0))
            return
        for index, (name, arguments) in enumerate(calls):
            yield ToolCallStart(index, f"call_{index}", name)
            for at in range(0, len(arguments), 3):
                yield ToolCallArgs(index, arguments[at : at + 3])
        yield Finish("tool_calls", Usage(5, 9, 0, 0))

    return script


async def until(happened: Callable[[], bool], what: str) -> None:
    """Wait for something in the server."""
    for _ in range(3000):
        if happened():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(what)


def turns(provider: ScriptedProvider, number: int = -1) -> list[tuple[str, str]]:
    """Roles and texts of a request."""
    return [(message.role, message.content) for message in provider.requests[number].messages]  # type: ignore[union-attr]
