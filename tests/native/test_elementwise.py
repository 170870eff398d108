"""Elementwise kernels and quantisation: the same bits at every ISA level, and integers as documented."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from native.compiler import COMPILER, HAS_AVX2, KERNEL_FLAGS, SOURCES

PROGRAM = Path(__file__).parent / "elementwise.cpp"
FLAGS = [*KERNEL_FLAGS, "-O1"]

AVX2 = ["-mavx2", "-mfma", "-mf16c"]
EMULATED = ["-DMILLSTREAM_EMULATE"]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")]


def compiled(name: str, flags: list[str], folder: Path, sources: Path = SOURCES) -> Path:
    """The object of the program, or of the kernels of a level."""
    assert COMPILER is not None
    found = folder / f"{name}.o"
    if not found.exists():
        portable = ["-mno-avx"] if platform.machine() in {"x86_64", "AMD64"} else []
        command = [COMPILER, *FLAGS, *portable, *flags, f"-I{sources}", "-c", str(PROGRAM), "-o", str(found)]
        subprocess.run(command, check=True, timeout=300)
    return found


def compare(level: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program over generic and a level."""
    assert COMPILER is not None
    objects = [level, compiled("generic", ["-DLEVEL=generic"], folder), compiled("program", [], folder)]
    program = folder / f"compare_{level.stem}"
    subprocess.run([COMPILER, *map(str, objects), "-o", str(program)], check=True, timeout=300)
    return subprocess.run([program], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of object files that all tests need."""
    return tmp_path_factory.mktemp("objects")


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        pytest.param("avx2", AVX2, marks=pytest.mark.skipif(not HAS_AVX2, reason="the processor has no AVX2 with FMA")),
        ("avx512", EMULATED),
    ],
)
def test_a_level_has_the_bits_of_generic(name: str, flags: list[str], folder: Path) -> None:
    done = compare(compiled(name, [*flags, "-DLEVEL=other"], folder), folder)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(", 0 differ\n")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "right", "wrong", "seen"),
    [
        ("quantize.h", "0, 2, 1, 3, 8, 10", "0, 1, 2, 3, 8, 10", "other quantise"),
        ("elementwise.h", "splat_wide(89.0f)", "splat_wide(88.0f)", "exp"),
        ("lanes.h", "half_of<0>(v) + half_of<1>(v)", "half_of<0>(v) + half_of<0>(v)", "norm"),
    ],
)
def test_the_comparison_sees_what_is_wrong(
    file: str, right: str, wrong: str, seen: str, folder: Path, tmp_path: Path
) -> None:
    sources = tmp_path / "src"
    shutil.copytree(SOURCES, sources)
    header = sources / "kernels" / file
    text = header.read_text()
    assert right in text
    header.write_text(text.replace(right, wrong))
    done = compare(compiled("wrong", [*EMULATED, "-DLEVEL=other"], tmp_path, sources), folder)
    assert done.returncode == 1
    assert f"differs: {seen}" in done.stdout
