"""Calls as JSON objects behind an opening marker: one object, several, or a list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Steps
from millstream.parsing.tools.shared.json_call import json_call


def any_name(name: str) -> bool:
    """What stands behind a marker is a call, whatever its name: the client answers a call of an unknown tool with an
    error from which the model can recover."""
    return True


class MarkedJson:
    """``OPEN {"name": …, "arguments": …} CLOSE`` with an optional list around the objects and an optional close."""

    def __init__(self, opens: Iterable[str], closes: Iterable[str] = ()) -> None:
        self._opens = Markers(opens)
        self._closes = Markers(closes)
        self._all = Markers((*self._opens.literals, *self._closes.literals))

    def steps(self, scanner: Scanner) -> Steps[None]:
        """The whole output: text, calls, text…"""
        open_call = False
        while True:
            marker = yield from scanner.until(self._all, scanner.content.write)
            if marker in self._opens:
                open_call = yield from marked_calls(scanner, marker, self._all, self._closes)
            elif open_call:
                open_call = False
                scanner.content.markup()
            else:
                scanner.write_marker(marker)


def marked_calls(
    scanner: Scanner, marker: str, stops: Markers, closes: Markers, accepts: Callable[[str], bool] = any_name
) -> Steps[bool]:
    """Reads the calls behind ``marker``, which was read last, and one of ``closes`` if it follows.

    Returns:
        Whether a call was found whose closing marker has not come yet.
    """
    scanner.record(marker)
    scanner.in_call = True
    found = False
    listed = False
    while True:
        yield from scanner.space()
        char = yield from scanner.peek()
        if char == "{":
            if found:
                scanner.record()
            if not (yield from json_call(scanner, stops, accepts)):
                break
            found = True
        elif char == "[" and not (listed or found):
            listed = True
            scanner.take(1)
        elif char in {",", ";"} and found:
            scanner.take(1)
        else:
            if char == "]" and listed and found:
                scanner.take(1)
                yield from scanner.space()
            break
    scanner.in_call = False
    if scanner.recording:
        scanner.reject()
        return found
    return (yield from scanner.accept(closes)) is None
