"""The team of threads that runs a step: phases, threads that are late or away, and when processors are offered."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from native.compiler import COMPILER, SOURCES

PROGRAM = Path(__file__).parent / "threads.cpp"
FLAGS = ["-std=c++20", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def run(program: Path, *flags: str) -> str:
    """Builds the laws with these flags, runs them, and returns what they print."""
    assert COMPILER is not None
    command = [COMPILER, *FLAGS, *flags, f"-I{SOURCES}", str(PROGRAM), str(SOURCES / "threads.cpp"), "-o", str(program)]
    subprocess.run(command, check=True, timeout=300)
    done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.stdout


def can_build(folder: Path, flag: str) -> bool:
    """Whether compiler and system have what a flag needs."""
    assert COMPILER is not None
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() {}")
    built = subprocess.run([COMPILER, flag, str(source), "-o", str(program)], capture_output=True, timeout=300)
    return built.returncode == 0 and subprocess.run([program], capture_output=True, timeout=300).returncode == 0


@pytest.mark.slow
def test_the_laws_hold(tmp_path: Path) -> None:
    assert run(tmp_path / "threads") == "all hold\n"


@pytest.mark.slow
def test_no_two_threads_race(tmp_path: Path) -> None:
    if not can_build(tmp_path, "-fsanitize=thread"):
        pytest.skip("no thread sanitizer")
    assert run(tmp_path / "threads", "-fsanitize=thread") == "all hold\n"
