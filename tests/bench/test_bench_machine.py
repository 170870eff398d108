"""Measurements of the machine are plausible, whatever the machine."""

from __future__ import annotations

import os
import subprocess
import sys

from millstream.bench.limits import read_bandwidth
from millstream.bench.system import CpuMeter, children, peak_resident_bytes, resident_bytes, seconds_alive


def test_bandwidth_of_a_small_array() -> None:
    found = read_bandwidth(buffer_bytes=3 << 20, threads=2, seconds=0.05)
    assert found.best >= found.median > 0
    assert (found.threads, found.buffer_bytes) == (2, 3 << 20)


def test_own_memory_and_age() -> None:
    assert 0 < resident_bytes() <= peak_resident_bytes()
    assert resident_bytes(os.getpid()) > 1 << 20
    assert seconds_alive() > 0


def test_a_child_is_found_until_it_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        child.communicate(b"\n")
    assert child.pid not in children(os.getpid())
    assert resident_bytes(child.pid) == 0


def test_the_share_of_others_is_a_share() -> None:
    meter = CpuMeter()
    sum(range(100_000))
    assert 0.0 <= meter.others() <= 1.0
