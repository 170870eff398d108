"""Which ISA level is taken, for processors, virtual machines and systems that are not at hand."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from native.compiler import COMPILER, SOURCES

PROGRAM = Path(__file__).parent / "detected_levels.cpp"

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler"),
    pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="the levels are those of x86"),
    pytest.mark.skipif(platform.system() != "Linux", reason="the AMX level is built for Linux"),
]

# Bits by the names of /proc/cpuinfo, numbered as in Intel's manual, volume 2, CPUID.
LEAF_1_ECX = {"fma": 12, "osxsave": 27, "avx": 28, "f16c": 29}
LEAF_7_EBX = {"avx2": 5, "avx512f": 16, "avx512dq": 17, "avx512bw": 30, "avx512vl": 31}
LEAF_7_ECX = {"avx512_vnni": 11}
LEAF_7_EDX = {"amx_bf16": 22, "amx_tile": 24, "amx_int8": 25}
XCR0 = {"x87": 0, "sse": 1, "ymm": 2, "k": 5, "zmm_low": 6, "zmm_high": 7, "tile_config": 17, "tile_data": 18}
WORDS = (LEAF_1_ECX, LEAF_7_EBX, LEAF_7_ECX, LEAF_7_EDX, XCR0)
ALL = frozenset(name for word in WORDS for name in word)

AVX2 = {"fma", "osxsave", "avx", "f16c", "avx2"}
AVX512 = {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni"}
AMX = {"amx_tile", "amx_int8", "amx_bf16"}


class Found(NamedTuple):
    """What the program printed."""

    levels: list[str]
    chosen: str
    asked: int


def _compiled(folder: Path, *levels: str) -> Path:
    """The program, as in a build with these levels."""
    assert COMPILER is not None
    found = folder / "detected_levels"
    built = [f"-DMILLSTREAM_HAVE_{level}" for level in levels]
    sources = [PROGRAM, SOURCES / "kernels" / "dispatch.cpp"]
    subprocess.run(
        [COMPILER, "-std=c++20", *built, f"-I{SOURCES}", *map(str, sources), "-o", str(found)], check=True, timeout=300
    )
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The choice of the level with all levels built in."""
    return _compiled(tmp_path_factory.mktemp("program"), "AVX2", "AVX512", "AMX")


def _run(program: Path, *arguments: str) -> Found:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=True)
    levels, chosen, asked = done.stdout.splitlines()
    return Found(levels.split(), chosen, int(asked))


def _with(program: Path, names: set[str] | frozenset[str], permission: str = "granted", wanted: str = "") -> Found:
    words = [f"{sum(1 << bit for name, bit in word.items() if name in names):x}" for word in WORDS]
    return _run(program, *words, permission, wanted)


def test_all_there_is(program: Path) -> None:
    assert _with(program, ALL) == Found(["generic", "avx2", "avx512", "amx"], "amx", 1)


def test_nothing_there_is(program: Path) -> None:
    assert _with(program, set()) == Found(["generic"], "generic", 0)


@pytest.mark.parametrize(
    ("missing", "best"),
    [(name, "generic") for name in sorted(AVX2 | {"sse", "ymm"})]
    + [(name, "avx2") for name in sorted(AVX512 | {"k", "zmm_low", "zmm_high"})]
    + [(name, "avx512") for name in sorted(AMX | {"tile_config", "tile_data"})],
)
def test_one_bit_less(program: Path, missing: str, best: str) -> None:
    """Flags or the system's part in keeping registers: a virtual machine may show one without the other."""
    found = _with(program, ALL - {missing})
    assert found.chosen == best
    assert found.asked == 0


@pytest.mark.parametrize(
    ("missing", "wanted", "why"),
    [
        ("avx2", "avx2", "the processor lacks AVX2, FMA or F16C; this build and machine have generic"),
        ("ymm", "avx512", "the system does not keep AVX registers; this build and machine have generic"),
        (
            "avx512_vnni",
            "amx",
            "the processor lacks AVX-512 F, BW, DQ, VL or VNNI; this build and machine have generic, avx2",
        ),
        ("zmm_high", "avx512", "the system does not keep AVX-512 registers; this build and machine have generic, avx2"),
        (
            "amx_bf16",
            "amx",
            "the processor lacks AMX with int8 or bf16; this build and machine have generic, avx2, avx512",
        ),
        (
            "tile_data",
            "amx",
            "the system does not keep AMX tiles (Linux does from 5.16); "
            "this build and machine have generic, avx2, avx512",
        ),
        ("x87", "sse9", "this build and machine have generic, avx2, avx512, amx"),
    ],
)
def test_a_level_that_cannot_run_says_why(program: Path, missing: str, wanted: str, why: str) -> None:
    assert _with(program, ALL - {missing}, wanted=wanted).chosen == f"MILLSTREAM_ISA={wanted}: {why}"


def test_refused_tiles(program: Path) -> None:
    assert _with(program, ALL, "refused") == Found(["generic", "avx2", "avx512"], "avx512", 1)
    assert _with(program, ALL, "refused", "amx").chosen == (
        "MILLSTREAM_ISA=amx: the system refuses this process the use of AMX tiles; "
        "this build and machine have generic, avx2, avx512"
    )


def test_a_level_that_the_build_lacks(tmp_path: Path) -> None:
    """Nor is its permission asked for."""
    program = _compiled(tmp_path, "AVX2")
    assert _with(program, ALL) == Found(["generic", "avx2"], "avx2", 0)
    assert _with(program, ALL, wanted="amx").chosen == (
        "MILLSTREAM_ISA=amx: this build lacks it; this build and machine have generic, avx2"
    )


def test_a_lower_level_by_name(program: Path) -> None:
    for level in ("generic", "avx2", "avx512"):
        assert _with(program, ALL, wanted=level).chosen == level


def _flags() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return set(next(line for line in lines if line.startswith("flags")).split()[2:])


def test_this_machine_as_its_system_sees_it(program: Path) -> None:
    """Linux shows the flags of what it keeps registers for."""
    flags = _flags()
    expected = ["generic"]
    for level, names in (("avx2", AVX2 - {"osxsave"}), ("avx512", AVX512), ("amx", AMX)):
        if names <= flags and len(expected) == ("avx2", "avx512", "amx").index(level) + 1:
            expected.append(level)
    assert _run(program, "here", "granted", "").levels == expected


def test_the_system_itself_refuses_what_the_processor_seems_to_have(program: Path) -> None:
    if "amx_tile" in _flags():
        pytest.skip("the system may permit tiles here")
    assert _with(program, ALL, "ask").chosen == "avx512"
