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
FLAGS = ["-std=c++20", "-O1", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]


def build(folder: Path, sources: Path) -> Path:
    """The comparing program, with the kernels in ``sources``."""
    assert COMPILER is not None
    objects = []
    for source, extra in (
        (sources / "kernels" / "generic.cpp", []),
        (sources / "kernels" / "avx512.cpp", ["-DMILLSTREAM_EMULATE"]),
        (sources / "kernels" / "amx.cpp", ["-DMILLSTREAM_EMULATE"]),
        (PROGRAM, []),
    ):
        objects.append(folder / f"{source.stem}.o")
        command = [COMPILER, *FLAGS, *extra, f"-I{sources}", "-c", str(source), "-o", str(objects[-1])]
        subprocess.run(command, check=True, timeout=300)
    program = folder / "emulated_levels"
    subprocess.run([COMPILER, *map(str, objects), "-o", str(program)], check=True, timeout=300)
    return program


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_avx512_and_amx_have_the_bits_of_generic(tmp_path: Path) -> None:
    done = subprocess.run([build(tmp_path, SOURCES)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(", 0 differ\n")


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_the_comparison_sees_a_wrong_product(tmp_path: Path) -> None:
    sources = tmp_path / "src"
    shutil.copytree(SOURCES, sources)
    amx = sources / "kernels" / "matmul_amx.h"
    text = amx.read_text()
    assert "dots << 4" in text
    amx.write_text(text.replace("dots << 4", "dots << 5"))
    done = subprocess.run([build(tmp_path, sources)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "differs: amx format 1" in done.stdout
    assert "differs: avx512" not in done.stdout
