"""`serve --tui` on a terminal of its own: both start, the keys reach the interface, leaving ends the server."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import environment
from support.tiny_models import build_tiny_model

_SECONDS = 120.0
"""Generous: a loaded machine takes its time, and the test waits no longer than it needs."""


class Terminal:
    """A command behind a pseudo-terminal of 80 by 24."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.pid, self._handle = pty.fork()
        if not self.pid:
            os.execve(command[0], command, env)
        fcntl.ioctl(self._handle, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.output = b""

    def until(self, pattern: bytes) -> re.Match[bytes]:
        """Read on until it has written this; what was read before counts too."""
        end = time.monotonic() + _SECONDS
        while not (found := re.search(pattern, self.output)):
            assert time.monotonic() < end, self.output[-4000:]
            if not self._read():
                raise AssertionError(f"it ended without {pattern!r}: {self.output[-4000:]!r}")
        return found

    def type(self, keys: bytes) -> None:
        """As the user would."""
        os.write(self._handle, keys)

    def code(self) -> int:
        """Its exit code, once it has ended."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        """End what is left."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        os.close(self._handle)

    def _read(self) -> bool:
        if not select.select([self._handle], [], [], 0.5)[0]:
            return True
        try:
            piece = os.read(self._handle, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            return False
        self.output += piece
        return bool(piece)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    model = build_tiny_model(tmp_path / "tiny llama.gguf")
    command = [
        sys.executable, "-m", "millstream", "serve", str(model), "--tui", "--port", "0",
        "--kv-cache", "256t", "--threads", "1",
    ]  # fmt: skip
    terminal = Terminal(command, environment(TERM="xterm", MILLSTREAM_HOME=str(tmp_path / "home"), NO_COLOR="1"))
    yield terminal
    terminal.close()


def test_it_shows_the_server_and_leaving_ends_it(terminal: Terminal) -> None:
    address = terminal.until(rb"ready.{0,40}http://127\.0\.0\.1:\d+")
    port = int(address[0].rsplit(b":", 1)[1])
    terminal.type(b"6")
    terminal.until(rb"ready: tiny-llama on http")  # what the server prints goes to the Logs page
    terminal.type(b"q")
    terminal.until(rb"finishes its open requests")
    assert terminal.code() == 0
    assert b"\x1b[?1049l" in terminal.output  # the screen that was there before is back
    assert b"Traceback" not in terminal.output
    with pytest.raises(ConnectionRefusedError):
        _connect(port)


def _connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
