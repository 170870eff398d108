"""Commands whose standard streams are closed, full, or read by nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.command import Result, environment

FULL = Path("/dev/full")
BUFFERING = pytest.mark.parametrize("unbuffered", ["", "1"])


def shell(script: str, *, unbuffered: str = "") -> Result:
    """A shell script in which ``$M`` is the command; its exit code is that of the command."""
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60,
        env=environment(M=f"{sys.executable} -m millstream", PYTHONUNBUFFERED=unbuffered),
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("command", ["--version", "list", "doctor --help"])
def test_a_command_without_its_output_does_its_work(command: str) -> None:
    assert shell(f"$M {command} >&-") == (0, "", "")


def test_a_failure_that_cannot_be_told_has_its_exit_code() -> None:
    assert shell("$M run -m absent.gguf hi >&- 2>&-").code == 1


def test_closed_input_is_empty_input() -> None:
    result = shell("$M run - <&-")
    assert (result.code, result.err) == (2, "error: the prompt is empty\n")


def test_nothing_else_gets_the_numbers_of_closed_streams(tmp_path: Path) -> None:
    """An engine process writes to standard output and error by number."""
    told = tmp_path / "told"
    code = (
        "import os, sys; from millstream.cli.streams import open_closed_streams as o; o(); "
        "n = os.stat(os.devnull).st_rdev; "
        "print([os.fstat(i).st_rdev == n and os.get_inheritable(i) for i in range(3)], file=open(sys.argv[1], 'w'))"
    )
    subprocess.run(["bash", "-c", '"$@" <&- >&- 2>&-', "bash", sys.executable, "-c", code, os.fspath(told)], timeout=60)
    assert told.read_text() == "[True, True, True]\n"


@BUFFERING
def test_a_reader_who_left_is_told_nothing(unbuffered: str) -> None:
    result = shell("exec 3>&1; (sleep 0.2; $M --version; echo $? >&3) | :", unbuffered=unbuffered)
    assert (result.out, result.err) == ("1\n", "")


@pytest.mark.skipif(not FULL.exists(), reason="no device that is full")
@BUFFERING
@pytest.mark.parametrize("command", ["--version", "list", "--help"])
def test_a_full_disk_is_one_line(command: str, unbuffered: str) -> None:
    result = shell(f"$M {command} >/dev/full", unbuffered=unbuffered)
    assert (result.code, result.err) == (1, "error: cannot write the output: No space left on device\n")


@pytest.mark.skipif(not FULL.exists(), reason="no device that is full")
def test_a_full_disk_below_errors_changes_no_exit_code() -> None:
    assert shell("$M run -m absent.gguf hi 2>/dev/full").code == 1
