"""Calls as JSON objects behind an opening marker: one object, several, or a list of them."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Steps
from millstream.parsing.tools.format import Toolbox
from millstream.parsing.tools.shared.json_call import json_call
from millstream.parsing.tools.shared.outer import text_and_calls


class MarkedJson:
    """``OPEN {"name": …, "arguments": …} CLOSE`` with an optional list around the objects and an optional close."""

    def __init__(self, opens: Iterable[str], closes: Iterable[str] = ()) -> None:
        self._opens = Markers(opens)
        self._closes = Markers(closes)
        self._stops = Markers([*self._opens.literals, *self._closes.literals])

    def steps(self, scanner: Scanner) -> Steps[None]:
        """The whole output."""
        return text_and_calls(
            scanner,
            self._opens,
            self._closes,
            lambda marker: marked_calls(scanner, marker, self._stops, self._closes),
        )


def marked_calls(
    scanner: Scanner,
    marker: str,
    stops: Markers,
    closes: Markers,
    declared: Toolbox | None = None,
) -> Steps[bool]:
    """Reads the calls behind ``marker``, which was read last, and one of ``closes`` if it follows.

    Args:
        marker: empty if nothing marks the calls; if it ends in an opening bracket, that is the list's.
        stops, declared: as for `json_call`.

    Returns:
        Whether a call was found whose closing marker has not come yet.
    """
    scanner.record(marker)
    found = False
    listed = marker.endswith("[")
    while True:
        yield from scanner.space()
        char = yield from scanner.peek()
        if char == "{":
            if found:
                scanner.record()
            if not (yield from json_call(scanner, stops, declared)):
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
    if scanner.recording:
        scanner.reject()
        return found
    return (yield from scanner.accept(closes)) is None


def bare_calls(scanner: Scanner, stops: Markers, closes: Markers, tools: Toolbox) -> Steps[bool]:
    """Calls that nothing marks, at the cursor; only of declared tools."""
    scanner.in_call = True
    awaits_close = yield from marked_calls(scanner, "", stops, closes, tools)
    scanner.in_call = False
    return awaits_close
