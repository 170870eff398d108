"""`millstream serve` as a user starts it: a process of its own, with a real model."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.cores import THREADS
from support.waiting import PATIENCE, wait_until

START_SECONDS = 120


class Served:
    """A running server process."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def health(self) -> httpx.Response:
        """Whether it is ready, and its counts."""
        # No TLS here, and to load its certificates takes more time than a server has to spare while it starts.
        return httpx.get(f"{self.url}/ready", timeout=120, trust_env=False, verify=False)

    def engine_pid(self) -> int:
        """Process id of the engine, the server's only child."""
        (child,) = self.engine_pids()
        return child

    def engine_pids(self) -> list[int]:
        """Process ids of the engines, the server's only children, in the order in which they were started."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return [int(each) for each in children]

    def wait_idle(self, seconds: float = PATIENCE) -> dict[str, object]:
        """The health body once nothing runs or waits."""

        def idle() -> dict[str, object] | None:
            body: dict[str, object] = self.health().json()
            quiet = (body.get("status"), body.get("running"), body.get("waiting")) == ("ready", 0, 0)
            return body if quiet else None

        body = wait_until(idle, "the server is not idle", seconds=seconds)
        assert body is not None
        return body

    def metric(self, name: str) -> float:
        """What the server tells of itself under a name with its labels."""
        text = httpx.get(f"{self.url}/metrics", timeout=120, trust_env=False, verify=False).text
        (value,) = [line.rpartition(" ")[2] for line in text.splitlines() if line.rpartition(" ")[0] == name]
        return float(value)


@contextmanager
def serve(model: Path, *options: str) -> Iterator[Served]:
    """Serve a model on a free port until the block ends; then Ctrl-C."""
    given = ("--port", "0", "--threads", str(THREADS), *options)
    command = [sys.executable, "-m", "millstream", "serve", str(model), *given]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ)
    try:
        yield Served(process, _address(process))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            process.stdout.close()  # type: ignore[union-attr]


def _address(process: subprocess.Popen[str]) -> str:
    """Where a server listens, once it is ready."""
    assert process.stdout is not None
    watchdog = threading.Timer(START_SECONDS, process.kill)
    watchdog.start()
    said = ""
    try:
        for line in process.stdout:
            if ready := re.match(r"ready: .* on (http://\S+)", line):
                return ready[1]
            said += line
    finally:
        watchdog.cancel()
    raise AssertionError(f"the server ended, or was not ready after {START_SECONDS} s: {said}")
