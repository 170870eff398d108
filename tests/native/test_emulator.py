"""The guest of `make emulate`, without an emulator: what its tool says of missing parts, and the kernel's archive."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "emulator" / "run.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("emulator_run", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("missing", ["bochs", "vmlinuz", "core"])
def test_what_is_missing_is_named(missing: str, tmp_path: Path) -> None:
    for name in {"bochs", "vmlinuz", "core"} - {missing}:
        (tmp_path / name).touch()
    options = [
        f"--{option}={tmp_path / name}"
        for option, name in [("bochs", "bochs"), ("kernel", "vmlinuz"), ("core", "core")]
    ]
    done = subprocess.run([sys.executable, TOOL, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(f"emulator: {tmp_path / missing} is missing")


def test_a_core_without_the_levels_is_refused(tool: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no objects of amx, avx2, avx512, dispatch, generic"):
        tool.build(tmp_path, "c++", tmp_path)


@pytest.mark.skipif(shutil.which("cpio") is None, reason="needs cpio")
def test_the_archive_is_what_cpio_reads(tool: ModuleType, tmp_path: Path) -> None:
    files = {"init": b"odd", "tests/1-levels": bytes(range(256)), "a/b/c/empty": b""}
    (tmp_path / "archive").write_bytes(b"".join(tool.archive(files)))
    root = tmp_path / "root"
    root.mkdir()
    with open(tmp_path / "archive", "rb") as archive:
        subprocess.run(["cpio", "--quiet", "-i"], stdin=archive, cwd=root, check=True, timeout=60)
    assert {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()} == files
    assert all((root / name).stat().st_mode & 0o111 for name in files)
    assert (root / "proc").is_dir()
