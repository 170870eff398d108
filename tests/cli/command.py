"""The command as a user runs it: another process, its output, its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple


class Result(NamedTuple):
    code: int
    out: str
    err: str


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what would colour or widen the output."""
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
    return {**kept, **changes}


def millstream(*args: str, stdin: str = "", timeout: float = 60, **changes: str) -> Result:
    """Run to the end. ``changes``: environment variables."""
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *args],
        input=stdin, capture_output=True, text=True, timeout=timeout, env=environment(**changes),
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


def one_error_line(result: Result) -> str:
    """The message of a command that failed as it should: exit code 1, one line on stderr, nothing else."""
    assert result.code == 1, result
    assert result.out == ""
    assert result.err.startswith("error: "), result.err
    assert result.err.count("\n") == 1, result.err
    return result.err.removeprefix("error: ").strip()
