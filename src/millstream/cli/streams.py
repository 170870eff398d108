"""Standard streams that a caller closed, or that fail: a pipe whose reader left, a full disk."""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn, TextIO

from millstream.cli.errors import FAILURE
from millstream.cli.terminal import report

_OUTPUT_FAILED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def open_closed_streams() -> None:
    """Put the null device where a standard stream is closed.

    Whatever is opened next would get its number otherwise: a socket or a database, into which engine processes and
    native code, which know standard output and standard error by their numbers, would write.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115  # as long as the process
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def is_output_failure(error: OSError) -> bool:
    """Whether an error that nobody has dealt with says that standard output cannot be written."""
    return error.filename is None and error.errno in _OUTPUT_FAILED


def end(code: int | str | None, failure: OSError | None = None) -> NoReturn:
    """Write what is left of the output and end with this code, or with that of a failure if it cannot be written.

    ``failure``: what is known already. A reader who left is told nothing: that is how ``head`` ends.
    """
    failure = _last_words(sys.stdout) or failure
    if failure is not None:
        code = code or FAILURE
        if failure.errno != errno.EPIPE:
            report(f"cannot write the output: {failure.strerror}")
    _last_words(sys.stderr)
    sys.exit(code)


def _last_words(stream: TextIO) -> OSError | None:
    """Write what is left for a stream. If that fails it goes nowhere: the interpreter would try again, and complain."""
    try:
        stream.flush()
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        return error
    return None
