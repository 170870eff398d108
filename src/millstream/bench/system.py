"""Memory, age and processor time of processes, and how busy the machine is, from /proc."""

from __future__ import annotations

import os
import time

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process (None: this one); 0 if it is gone."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0


def peak_resident_bytes() -> int:
    """The most memory that was resident in this process so far."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    raise OSError("/proc/self/status has no VmHWM line")


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))) and int(fields[1]) == pid:
            found.append(int(name))
    return found


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process so far, user and system.

    From the scheduler's own count, in nanoseconds, where the kernel keeps one, else in ticks of 10 ms. A thread that
    ended is missing in the first. Raises `OSError` if there is no such process.
    """
    nanoseconds = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                nanoseconds += int(file.read().split()[0])
        except OSError:
            continue
    if nanoseconds:
        return nanoseconds / 1e9
    fields = _stat(pid)
    if not fields:
        raise ProcessLookupError(f"there is no process {pid}")
    return (int(fields[11]) + int(fields[12])) / _TICKS


def seconds_alive() -> float:
    """How long ago this process was started, the interpreter's own start included; resolution 10 ms."""
    fields = _stat(os.getpid())
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS if fields else 0.0


class CpuMeter:
    """What other programs used of all processors since the meter was made."""

    def __init__(self) -> None:
        self._wall, self._busy, self._own = time.monotonic(), _busy_seconds(), time.process_time()

    def others(self) -> float:
        """Share of all processors, 0 to 1. Speeds measured beside more than a few percent tell little."""
        wall = time.monotonic() - self._wall
        used = (_busy_seconds() - self._busy) - (time.process_time() - self._own)
        return min(1.0, max(0.0, used / (wall * (os.cpu_count() or 1)))) if wall > 0 else 0.0


def _busy_seconds() -> float:
    """Processor seconds that everything on the machine spent since boot, stolen ones included."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third (state) on; the name before may contain anything."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
