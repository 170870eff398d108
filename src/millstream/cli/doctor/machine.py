"""The machine: system, processors, instruction sets, huge pages, memory bandwidth, the native core."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from millstream.cli.doctor.findings import Finding, ok, problem, warning

_GOOD_LEVEL = "avx2"
_READ_BYTES = 64 << 20
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_CGROUP = Path("/sys/fs/cgroup")


def check_machine() -> Iterator[Finding]:
    """Everything that does not depend on a model."""
    yield _system()
    yield ok("python", f"{platform.python_version()} in {sys.prefix}")
    yield _processors()
    yield from _native()
    yield _huge_pages()
    yield _bandwidth()


def _system() -> Finding:
    text = f"{platform.system()} {platform.release()}, {platform.machine()}, {_cpu_name()}"
    if platform.system() != "Linux":
        return warning("system", text, "Millstream is tested on Linux; elsewhere some checks and limits are missing")
    return ok("system", text)


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _processors() -> Finding:
    present = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    quota = cpu_quota(_CGROUP)
    text = f"{usable} of {present} processors may be used"
    if quota is not None and quota < usable:
        threads = max(1, int(quota))
        return warning(
            "processors",
            f"{text}, but the container's limit is {quota:g}",
            f"serve with --threads {threads}, or raise the limit: more threads are stopped in mid-step",
        )
    return ok("processors", text)


def cpu_quota(folder: Path) -> float | None:
    """Processors that the control group grants (``cpu.max``: quota and period in microseconds); None: no limit."""
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def memory_limit(folder: Path = _CGROUP) -> int | None:
    """Bytes that the control group still grants; None: no limit."""
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        return None if limit == "max" else int(limit) - int((folder / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _native() -> Iterator[Finding]:
    forced = os.environ.get("MILLSTREAM_ISA")
    try:
        from millstream.native import active_isa, isa_levels

        levels, used = isa_levels(), active_isa()
    except ImportError as error:
        mend = "install it again: pip install --force-reinstall millstream"
        yield problem("native core", f"cannot be loaded: {error}", mend)
        return
    except RuntimeError as error:
        yield problem("instruction set", str(error), "unset MILLSTREAM_ISA, or name a level that is there")
        return
    yield ok("native core", "loads")
    why = f"forced by MILLSTREAM_ISA={forced}" if forced else "the best of them"
    text = f"{used} ({why}; this build and machine have {', '.join(levels)})"
    if forced and used != levels[-1]:
        yield warning("instruction set", text, "unset MILLSTREAM_ISA to use the best one")
    elif _GOOD_LEVEL not in levels:
        mend = "expect a fraction of the usual speed: the processor (or the emulation of it) lacks AVX2 or FMA"
        yield warning("instruction set", text, mend)
    else:
        yield ok("instruction set", text)


def _huge_pages() -> Finding:
    try:
        text = _HUGE_PAGES.read_text(encoding="ascii").strip()
    except OSError:
        return warning("huge pages", "the system does not tell", "nothing to do; weights are read through small pages")
    chosen = text.partition("[")[2].partition("]")[0]
    if chosen == "never":
        return warning("huge pages", "off", f"as root: echo madvise > {_HUGE_PAGES}; weights are read faster then")
    return ok("huge pages", chosen)


def _bandwidth() -> Finding:
    import numpy as np

    data = np.ones(_READ_BYTES // 8, np.float64)
    data.sum()  # so that every page is there
    began = time.perf_counter()
    data.sum()
    seconds = time.perf_counter() - began
    return ok("bandwidth", f"one thread reads {_READ_BYTES / seconds / 1e9:.1f} GB/s; a token reads all weights once")
