"""What is particular to terminals: whether there is one, colour, and what a model may write to it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO

_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False


def has_colour(stream: IO[str]) -> bool:
    """Colour only for a terminal that can show it, and never against ``NO_COLOR`` (no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def styled(text: str, code: str, stream: IO[str]) -> str:
    """``text`` in an ANSI style (``1`` bold, ``2`` dim, …) if ``stream`` shows colours."""
    return f"\x1b[{code}m{text}\x1b[0m" if has_colour(stream) else text


def prompt(text: str) -> str:
    """``text`` in bold, for `input`. Readline is told which characters take no room (those between ``\\x01`` and
    ``\\x02``), else it loses the column on lines longer than the terminal."""
    if not has_colour(sys.stdout):
        return text
    before, after = ("\x01", "\x02") if "readline" in sys.modules else ("", "")
    return f"{before}\x1b[1m{after}{text}{before}\x1b[0m{after}"


def printable(text: str, stream: IO[str]) -> str:
    """Model output as it may go to ``stream``: a terminal gets no control characters but newline and tab, so that a
    model cannot move the cursor or drive the terminal; a pipe or a file gets the text as it is."""
    return text.translate(_CONTROLS) if is_terminal(stream) else text


def note(text: str) -> None:
    """A line about the work, not part of its result: lost if standard error cannot be written."""
    with suppress(OSError):
        print(styled(text, "2", sys.stderr), file=sys.stderr, flush=True)


def report(message: str) -> None:
    """The one line that says why a command failed; its exit code says that too."""
    with suppress(OSError):
        print(f"{styled('error:', '1;31', sys.stderr)} {message}", file=sys.stderr, flush=True)
