"""The outermost loop of most formats: text, a call behind its marker, text…"""

from __future__ import annotations

from collections.abc import Callable

from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import Scanner, Steps


def text_and_calls(
    scanner: Scanner, opens: Markers, closes: Markers, call: Callable[[str], Steps[bool]]
) -> Steps[None]:
    """Parses a whole output.

    Args:
        opens: markers in front of calls.
        closes: markers behind them. One that belongs to no call is text.
        call: reads what stands behind the opening marker it is given, which is recorded already; it reports a call, or
            rejects what was recorded. Returns whether a closing marker is still to come.
    """
    both = Markers([*opens.literals, *closes.literals])
    awaits_close = False
    while True:
        marker = yield from scanner.until(both, scanner.content.write)
        if marker in opens:
            scanner.record(marker)
            scanner.in_call = True
            awaits_close = yield from call(marker)
            scanner.in_call = False
        elif awaits_close:
            awaits_close = False
            scanner.content.markup()
        else:
            scanner.write_marker(marker)
