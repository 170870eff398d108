"""Entry point of the command: nothing slow is imported before Ctrl-C and failures are taken care of."""

from __future__ import annotations

import gc
import os
from typing import NoReturn

from millstream.cli.errors import INTERRUPTED, CliError
from millstream.cli.streams import end, is_output_failure, open_closed_streams
from millstream.cli.terminal import report

_YOUNG_OBJECTS = 50_000
"""New objects after which the collector looks at them. What a command imports stays: to look at it again and again
takes a tenth of a start."""


def main() -> NoReturn:
    """Run the command line. A failure that has a reason is one line on stderr, not a traceback."""
    gc.set_threshold(_YOUNG_OBJECTS)
    open_closed_streams()
    code: int | str | None = 0
    failure: OSError | None = None
    try:
        if "_MILLSTREAM_COMPLETE" in os.environ:  # the shell asks for words, in the way of Typer's scripts
            from typer.completion import completion_init  # type: ignore[attr-defined]  # Typer has no other name for it

            completion_init()
        from millstream.cli.app import app

        app()
    except CliError as error:
        report(error.message)
        code = error.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as error:
        code = error.code
    except OSError as error:
        if not is_output_failure(error):
            raise
        failure = error
    end(code, failure)
