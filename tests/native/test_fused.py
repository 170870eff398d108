"""The fused multiply-add of the kernels: rounded once, in hardware and where it is computed through double."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from native.compiler import COMPILER, HAS_AVX2, KERNEL_FLAGS, SOURCES

PROGRAM = Path(__file__).parent / "fused.cpp"
FLAGS = [*KERNEL_FLAGS, "-O1"]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def compare(folder: Path, flags: list[str], sources: Path = SOURCES) -> subprocess.CompletedProcess[str]:
    """Builds the comparing program with the primitive in ``sources`` and runs it."""
    assert COMPILER is not None
    program = folder / "fused"
    command = [COMPILER, *FLAGS, *flags, f"-I{sources}", str(PROGRAM), "-o", str(program)]
    subprocess.run(command, check=True, timeout=300)
    return subprocess.run([program], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["-DMILLSTREAM_EMULATE"]], ids=["quick unless doubtful", "always careful"])
def test_without_hardware_it_is_rounded_once(flags: list[str], tmp_path: Path) -> None:
    done = compare(tmp_path, flags)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(", 0 differ\n")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_AVX2, reason="the processor has no FMA")
def test_the_hardware_has_the_same_bits(tmp_path: Path) -> None:
    done = compare(tmp_path, ["-mavx2", "-mfma", "-mf16c"])
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(", 0 differ\n")


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() == "aarch64", reason="there is hardware instead")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("bits + (outwards", "bits + (0 & outwards"), ("-1, 0x10000000, -1", "-1, -1, -1"), ("lowest + normal", "lowest")],
)
def test_the_comparison_sees_what_is_rounded_twice(right: str, wrong: str, tmp_path: Path) -> None:
    sources = tmp_path / "src"
    shutil.copytree(SOURCES, sources)
    emulation = sources / "kernels" / "emulated_fma.h"
    text = emulation.read_text()
    assert right in text
    emulation.write_text(text.replace(right, wrong))
    done = compare(tmp_path, [], sources)
    assert done.returncode == 1
    assert "differs: " in done.stdout
