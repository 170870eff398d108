"""Whether a process runs, waits for a processor, or waits for something else: what Linux tells of it in /proc.

Elsewhere nothing is known, and silence is judged by the clock alone.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

_WANTS_TO_RUN = frozenset("RD")
"""States of a thread (proc(5)): on a processor or in the queue for one; waiting for a disk, as when it was swapped out.
A sleeping, stopped or dead thread is kept from nothing."""


ANSWERING = "answers"
"""Name of a thread that answers questions about the process and does none of its work. It runs, or would, whenever it
is asked, so that nothing it does tells how the work goes."""


class Vitals(msgspec.Struct, frozen=True):
    """Of all threads but those of the name `ANSWERING`. ``cpu_seconds``: their processor time so far;
    ``wants_to_run``: whether any would go on if the machine let it."""

    cpu_seconds: float
    wants_to_run: bool


def vitals(pid: int) -> Vitals | None:
    """A look at a process; None if nothing is known of it."""
    ticks = 0
    wants = False
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            # The name, in parentheses, may hold anything; the state is the first field behind it.
            head, _, tail = (thread / "stat").read_text(errors="replace").rpartition(")")
            if head.endswith(f"({ANSWERING}"):
                continue
            fields = tail.split()
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


def leave_vitals() -> None:
    """Give the calling thread the name `ANSWERING`, where the system lets it."""
    with suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(ANSWERING, encoding="ascii")
