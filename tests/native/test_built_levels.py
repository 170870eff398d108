"""Compilers and assemblers that do not know an ISA level: the build leaves it out."""

from __future__ import annotations

import json
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from native.compiler import COMPILER

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None or shutil.which("cmake") is None, reason="no C++ compiler, or no CMake"),
    pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="the levels are those of x86"),
    pytest.mark.skipif(platform.system() != "Linux", reason="the AMX level is built for Linux"),
]

# Refuses what an older tool would: a flag, or an instruction in a file to compile.
OLD_COMPILER = """#!/bin/sh
for argument in "$@"; do
    case "$argument" in {flag}) echo "unrecognized option" >&2; exit 1;; esac
    if [ -f "$argument" ] && grep -q '"{instruction} ' "$argument"; then echo "no such instruction" >&2; exit 1; fi
done
exec {compiler} "$@"
"""


@pytest.mark.parametrize(
    ("flag", "instruction", "built"),
    [
        ("-mamx-bf16", "none", ["avx2", "avx512"]),
        ("-none", "tdpbssd", ["avx2", "avx512"]),
        ("-none", "vpdpbusd", ["avx2"]),
    ],
)
def test_a_level_that_the_tools_lack_is_left_out(flag: str, instruction: str, built: list[str], tmp_path: Path) -> None:
    assert COMPILER is not None
    compiler = tmp_path / "c++"
    compiler.write_text(OLD_COMPILER.format(flag=flag, instruction=instruction, compiler=shlex.quote(COMPILER)))
    compiler.chmod(0o755)
    options = [
        f"-DCMAKE_CXX_COMPILER={compiler}",
        f"-DPython_EXECUTABLE={sys.executable}",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    ]
    subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path, *options], check=True, capture_output=True, timeout=300)
    commands = json.loads((tmp_path / "compile_commands.json").read_text(encoding="utf-8"))
    kernels = {Path(command["file"]).stem: command["command"] for command in commands if "/kernels/" in command["file"]}
    assert set(kernels) == {"dispatch", "generic", *built}
    defined = [word for word in kernels["dispatch"].split() if word.startswith("-DMILLSTREAM_HAVE_")]
    assert sorted(defined) == sorted(f"-DMILLSTREAM_HAVE_{level.upper()}" for level in built)
