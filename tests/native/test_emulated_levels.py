"""AVX-512 and AMX on machines that have neither: the same kernel sources over emulated instructions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from native.compiler import COMPILER, KERNEL_FLAGS, SOURCES

LEVELS = Path(__file__).parent / "emulated_levels.cpp"
ATTENTION = Path(__file__).parent / "emulated_attention.cpp"

KERNELS = ("generic", "avx512", "amx")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")]


def compiled(kernel: str, sources: Path, folder: Path) -> Path:
    """The object file of a kernel's source, emulated if it must be."""
    return _object(sources / "kernels" / f"{kernel}.cpp", sources, folder, emulated=kernel != "generic")


def compare(program: Path, kernels: list[Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a comparing program over these kernels."""
    assert COMPILER is not None
    objects = [*kernels, _object(program, SOURCES, folder, emulated=False)]
    linked = folder / program.stem
    subprocess.run([COMPILER, *map(str, objects), "-pthread", "-o", str(linked)], check=True, timeout=300)
    return subprocess.run([linked], capture_output=True, text=True, timeout=300)


def _object(source: Path, sources: Path, folder: Path, *, emulated: bool) -> Path:
    assert COMPILER is not None
    found = folder / f"{source.stem}.o"
    if not found.exists():
        extra = ["-O0", "-DMILLSTREAM_EMULATE"] if emulated else ["-O1"]  # they take longer to compile than to run
        command = [COMPILER, *KERNEL_FLAGS, *extra, f"-I{sources}", "-c", str(source), "-o", str(found)]
        subprocess.run(command, check=True, timeout=300)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of object files that both tests need."""
    return tmp_path_factory.mktemp("objects")


def test_avx512_and_amx_have_the_bits_of_generic(folder: Path) -> None:
    """But for attention over f16 pages on tiles."""
    done = compare(LEVELS, [compiled(kernel, SOURCES, folder) for kernel in KERNELS], folder)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(", 0 differ\n")


def test_attention_on_tiles_is_near_and_the_same_in_any_company(folder: Path) -> None:
    done = compare(ATTENTION, [compiled(kernel, SOURCES, folder) for kernel in ("generic", "amx")], folder)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(", 0 differ\n")


def changed(kernel_file: str, right: str, wrong: str, folder: Path) -> Path:
    """The object file of the AMX level with something wrong in one of its files."""
    sources = folder / "src"
    shutil.copytree(SOURCES, sources)
    file = sources / "kernels" / kernel_file
    text = file.read_text()
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong))
    return compiled("amx", sources, folder)


@pytest.mark.thorough
def test_the_comparison_sees_a_wrong_product(folder: Path, tmp_path: Path) -> None:
    right = [compiled(kernel, SOURCES, folder) for kernel in KERNELS[:2]]
    done = compare(LEVELS, [*right, changed("matmul_amx.h", "dots << 4", "dots << 5", tmp_path)], folder)
    assert done.returncode == 1
    assert "differs: amx format 3" in done.stdout
    assert "differs: avx512" not in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("load_row_tiles(rows + 64)", "load_row_tiles(rows)", "from generic"),
        ("split_step<true>", "split_step<false>", "in company"),
        ("term >= end", "term > end", "from generic"),
    ],
    ids=["a product left out", "what is not finite", "positions that nobody sees"],
)
def test_the_comparison_sees_wrong_attention(right: str, wrong: str, what: str, folder: Path, tmp_path: Path) -> None:
    amx = changed("attention_amx.h", right, wrong, tmp_path)
    done = compare(ATTENTION, [compiled("generic", SOURCES, folder), amx], folder)
    assert done.returncode == 1
    assert f"differs: {what}" in done.stdout
