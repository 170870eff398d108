"""Entry point of the command: nothing slow is imported before Ctrl-C and failures are taken care of."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

from millstream.cli.errors import INTERRUPTED, CliError

_YOUNG_OBJECTS = 50_000
"""New objects after which the collector looks at them. What a command imports stays: to look at it again and again
takes a tenth of a start."""


def main() -> NoReturn:
    """Run the command line. A failure that has a reason is one line on stderr, not a traceback."""
    gc.set_threshold(_YOUNG_OBJECTS)
    try:
        if "_MILLSTREAM_COMPLETE" in os.environ:  # the shell asks for words, in the way of Typer's scripts
            from typer.completion import completion_init  # type: ignore[attr-defined]  # Typer has no other name for it

            completion_init()
        from millstream.cli.app import app

        app()
    except CliError as error:
        from millstream.cli.terminal import report

        report(error.message)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(0)
