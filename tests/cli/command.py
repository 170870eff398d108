"""The command as a user runs it: another process, its output, its exit code."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from typing import NamedTuple

from millstream.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what would colour or widen the output."""
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
    return {**kept, **changes}


def millstream(*args: str, stdin: str | bytes = "") -> Result:
    """Run to the end in this process: the same entry point, without the second that a new interpreter takes."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    argv, stdin_before = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["millstream", *args], io.TextIOWrapper(io.BytesIO(data))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv, sys.stdin = argv, stdin_before
    return Result(code, out.getvalue(), err.getvalue())


def millstream_process(*args: str, **changes: str) -> Result:
    """Run to the end in a process of its own. ``changes``: environment variables."""
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *args],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environment(**changes),
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


def one_error_line(result: Result) -> str:
    """The message of a command that failed as it should: exit code 1, one line on stderr, nothing else."""
    assert result.code == 1, result
    assert result.out == ""
    assert result.err.startswith("error: "), result.err
    assert result.err.count("\n") == 1, result.err
    return result.err.removeprefix("error: ").strip()
