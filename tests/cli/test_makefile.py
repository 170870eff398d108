"""The verbs of the Makefile, without running what they run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.heavy import HEAVY_FILES

ROOT = Path(__file__).parents[2]


def make(*args: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), *args], capture_output=True, text=True, env=kept, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_default_target_lists_the_verbs() -> None:
    listed = make()
    for verb in (
        "serve",
        "test",
        "thorough",
        "test-js",
        "agents",
        "check",
        "format",
        "audit",
        "bench",
        "oracle",
        "clean",
        "help",
    ):
        assert f"make {verb} " in listed


def test_the_heavy_files_that_begin_are_there() -> None:
    assert [name for name in HEAVY_FILES if not (ROOT / "tests" / name).is_file()] == []


def test_serve_builds_first_and_passes_arguments_on(tmp_path: Path) -> None:
    plan = make("-n", "serve", f"VENV={tmp_path / 'venv'}", "ARGS=--port 8100")
    steps = [plan.index(step) for step in ("find-python.sh", "--editable .", "millstream serve --port 8100")]
    assert steps == sorted(steps)


def test_what_is_installed_is_not_installed_again(tmp_path: Path) -> None:
    """Stamps newer than every source, as after a first start."""
    for stamp in (".ready-venv", ".ready-package"):
        (tmp_path / stamp).touch()
    plan = make("-n", "serve", f"VENV={tmp_path}")
    assert "pip" not in plan
    assert plan.count("\n") == 1


def test_a_change_of_the_native_core_makes_the_package_stale(tmp_path: Path) -> None:
    for stamp in (".ready-venv", ".ready-package"):
        (tmp_path / stamp).touch()
    os.utime(tmp_path / ".ready-package", (0, 0))
    assert "--editable ." in make("-n", "serve", f"VENV={tmp_path}")


@pytest.mark.parametrize(("name", "words"), [("python3", "older"), ("python3", "no venv")])
def test_an_interpreter_that_cannot_build_is_told(tmp_path: Path, name: str, words: str) -> None:
    """Only interpreters that fail the probe are on PATH."""
    fake = tmp_path / name
    fake.write_text(f'#!/bin/sh\necho "is {words}" >&2\nexit 1\n')
    fake.chmod(0o755)
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\nexit 0\n")
    compiler.chmod(0o755)
    for tool in ("sh", "head"):
        found = next(path for path in ("/bin", "/usr/bin") if os.access(f"{path}/{tool}", os.X_OK))
        (tmp_path / tool).symlink_to(f"{found}/{tool}")
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "find-python.sh")],
        capture_output=True, text=True, env={"PATH": str(tmp_path)}, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    assert "needs Python 3.11 or later" in done.stderr
    assert words in done.stderr
    (compiler).unlink()
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "find-python.sh")],
        capture_output=True, text=True, env={"PATH": str(tmp_path)}, timeout=30,
    )  # fmt: skip
    assert "needs a C++20 compiler" in done.stderr
