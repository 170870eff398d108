"""Servers that a benchmark starts do not outlive it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import wait_until

_BENCHMARK = """
import sys, time
from pathlib import Path
from millstream.bench import server

def told(process):
    print(process.pid, flush=True)
    time.sleep(600)

server._read_until_ready = told
server.measure_server_start(Path(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others do not tell a child")
def test_the_server_of_a_killed_benchmark_ends(tmp_path: Path) -> None:
    model = tmp_path / "absent.gguf"
    with subprocess.Popen([sys.executable, "-c", _BENCHMARK, str(model)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server = Path(f"/proc/{int(process.stdout.readline())}/cmdline")
        process.kill()
        wait_until(lambda: not server.exists() or not server.read_bytes(), "the server runs on")
