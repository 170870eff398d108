"""AVX-512 and AMX on machines that have neither: the same kernel sources over emulated instructions."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "millstream" / "native" / "src"
PROGRAM = Path(__file__).parent / "emulated_levels.cpp"
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("clang++")
FLAGS = ["-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]

KERNELS = ("generic", "avx512", "amx")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")]


def compiled(kernel: str, sources: Path, folder: Path) -> Path:
    """The object file of a kernel's source, emulated if it must be."""
    return _object(sources / "kernels" / f"{kernel}.cpp", sources, folder, emulated=kernel != "generic")


def compare(kernels: list[Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the comparing program over these kernels."""
    assert COMPILER is not None
    objects = [*kernels, _object(PROGRAM, SOURCES, folder, emulated=False)]
    program = folder / "emulated_levels"
    subprocess.run([COMPILER, *map(str, objects), "-pthread", "-o", str(program)], check=True, timeout=300)
    return subprocess.run([program], capture_output=True, text=True, timeout=300)


def _object(source: Path, sources: Path, folder: Path, *, emulated: bool) -> Path:
    assert COMPILER is not None
    found = folder / f"{source.stem}.o"
    if not found.exists():
        extra = ["-O0", "-DMILLSTREAM_EMULATE"] if emulated else ["-O1"]  # they take longer to compile than to run
        command = [COMPILER, *FLAGS, *extra, f"-I{sources}", "-c", str(source), "-o", str(found)]
        subprocess.run(command, check=True, timeout=300)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of object files that both tests need."""
    return tmp_path_factory.mktemp("objects")


def test_avx512_and_amx_have_the_bits_of_generic(folder: Path) -> None:
    done = compare([compiled(kernel, SOURCES, folder) for kernel in KERNELS], folder)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(", 0 differ\n")


@pytest.mark.thorough
def test_the_comparison_sees_a_wrong_product(folder: Path, tmp_path: Path) -> None:
    sources = tmp_path / "src"
    shutil.copytree(SOURCES, sources)
    amx = sources / "kernels" / "matmul_amx.h"
    text = amx.read_text()
    assert "dots << 4" in text
    amx.write_text(text.replace("dots << 4", "dots << 5"))
    right = [compiled(kernel, SOURCES, folder) for kernel in KERNELS[:2]]
    done = compare([*right, compiled("amx", sources, tmp_path)], folder)
    assert done.returncode == 1
    assert "differs: amx format 3" in done.stdout
    assert "differs: avx512" not in done.stdout
