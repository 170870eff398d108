"""How long `millstream serve` takes until it answers, and how much memory its processes then hold."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from millstream.bench.errors import BenchError
from millstream.bench.system import children, resident_bytes
from millstream.ir.children import END_WITH_PARENT

_TIMEOUT = 120.0


class ServerStart(msgspec.Struct, frozen=True):
    """Seconds from the command to its ready line; resident memory of the API process and of its engine process then."""

    ready_s: float
    api_bytes: int
    engine_bytes: int


def measure_server_start(path: Path, *, threads: int = 0) -> ServerStart:
    """Start a server on a free port of this machine, wait for its ready line, and stop it with SIGINT.

    Raises:
        BenchError: it did not become ready; the message ends with what it said.
    """
    command = [
        sys.executable,
        "-m",
        "millstream",
        "serve",
        str(path),
        "--port",
        "0",
        "--no-fetch",
        "--threads",
        str(threads),
    ]
    begun = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=END_WITH_PARENT
    ) as process:
        watchdog = threading.Timer(_TIMEOUT, process.kill)
        watchdog.start()
        try:
            said = _read_until_ready(process)
            ready = time.perf_counter() - begun
            if said is not None:
                raise BenchError(f"the server did not start: {said}")
            engine = sum(resident_bytes(child) for child in children(process.pid))
            start = ServerStart(ready, resident_bytes(process.pid), engine)
            process.send_signal(signal.SIGINT)
            process.communicate()
            return start
        finally:
            process.kill()
            watchdog.cancel()


def _read_until_ready(process: subprocess.Popen[str]) -> str | None:
    """None once the ready line came, else the last line before the end of the output."""
    last = "no output"
    for line in process.stdout or ():
        if line.startswith("ready:"):
            return None
        last = line.strip() or last
    return last
