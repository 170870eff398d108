"""What the tests that compile parts of the core by themselves share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "millstream" / "native" / "src"
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("clang++")
"""None: there is none, and these tests are skipped."""

KERNEL_FLAGS = ["-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
"""What the core's build gives kernels, so that they have the same bits; without a level's instructions."""

_CPU = Path("/proc/cpuinfo")
HAS_AVX2 = _CPU.exists() and {"fma", "avx2", "f16c"} <= set(_CPU.read_text().split())
"""Whether the processor runs the level avx2, FMA included."""
