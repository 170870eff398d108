"""`millstream serve` as a user starts it: a process of its own, with a real model."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.cores import THREADS

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

    def wait_idle(self, seconds: float = 20) -> dict[str, object]:
        """The health body once nothing runs or waits."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            body: dict[str, object] = self.health().json()
            if (body.get("status"), body.get("running"), body.get("waiting")) == ("ready", 0, 0):
                return body
            time.sleep(0.05)
        raise AssertionError(f"the server is not idle after {seconds} s: {body}")


@contextmanager
def serve(model: Path, *options: str) -> Iterator[Served]:
    """Serve a model on a free port until the block ends; then Ctrl-C."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = ("--port", str(port), "--threads", str(THREADS), *options)
    command = [sys.executable, "-m", "millstream", "serve", str(model), *given]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ)
    server = Served(process, f"http://127.0.0.1:{port}")
    try:
        _wait_ready(server)
        yield server
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


def _wait_ready(server: Served) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if server.process.poll() is not None:
            output, _ = server.process.communicate()
            raise AssertionError(f"the server ended: {output}")
        try:
            if server.health().status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"the server is not ready after {START_SECONDS} s")
