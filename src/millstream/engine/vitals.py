"""Whether a process runs, waits for a processor, or waits for something else: what Linux tells of it in /proc.

Elsewhere nothing is known, and silence is judged by the clock alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

_WANTS_TO_RUN = frozenset("RD")
"""States of a thread (proc(5)): on a processor or in the queue for one; waiting for a disk, as when it was swapped out.
A sleeping, stopped or dead thread is kept from nothing."""


class Vitals(msgspec.Struct, frozen=True):
    """``cpu_seconds``: processor time of all threads so far; ``wants_to_run``: whether any thread would go on if the
    machine let it."""

    cpu_seconds: float
    wants_to_run: bool


def vitals(pid: int) -> Vitals | None:
    """A look at a process; None if nothing is known of it."""
    ticks = 0
    wants = False
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            # The name, in parentheses, may hold anything; the state is the first field behind it.
            fields = (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()
            wants = wants or fields[0] in _WANTS_TO_RUN
            ticks += int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return None
    return Vitals(ticks / os.sysconf("SC_CLK_TCK"), wants)


def share_of_time(before: Vitals | None, now: Vitals | None, seconds: float) -> float:
    """The part of ``seconds`` in which a process had what it needed, 0 to 1: all of them, unless it wants to run and
    was given less processor time."""
    if before is None or now is None or not now.wants_to_run:
        return 1.0
    return min(max(now.cpu_seconds - before.cpu_seconds, 0.0) / seconds, 1.0)
