"""The server of `serve --tui`: what it says, how it ends, and that it does not outlive its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from millstream.cli import top
from millstream.cli.errors import CliError
from millstream.tui.child import ServerProcess, read_line

SERVER = """
import signal, sys, time
def drain(*_):
    print("drained", flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, drain)
print("2026-01-02 03:04:05,678 WARNING millstream.server: \\x1b[31mslow", flush=True)
print("ready: m on http://127.0.0.1:8123 (avx2)", flush=True)
time.sleep(60)
"""


async def test_it_is_read_until_it_ends() -> None:
    process = ServerProcess([sys.executable, "-c", SERVER])
    seen = []
    async for line in process.logs():
        seen.append((line.level, line.logger, line.message))
        if line.message.startswith("ready:"):
            assert process.url == "http://127.0.0.1:8123"
            process.stop()
    await process.ended()
    assert seen == [
        ("warning", "millstream.server", "\x1b[31mslow"),
        ("info", "serve", "ready: m on http://127.0.0.1:8123 (avx2)"),
        ("info", "serve", "drained"),
    ]
    assert (process.returncode, process.last_words()) == (0, "drained")


def test_lines_have_the_level_that_they_tell() -> None:
    assert read_line("2026-01-02 03:04:05,678 CRITICAL a.b: x", 1.0).level == "error"
    assert read_line("error: no such model", 1.0).level == "error"
    assert read_line("Traceback (most recent call last):", 1.0).level == "error"
    assert read_line("  File x, line 1", 1.0, "error").level == "error"
    assert read_line("fetching 10%", 1.0, "error").level == "info"


def test_a_server_that_ends_by_itself_is_the_commands_failure() -> None:
    process = ServerProcess([sys.executable, "-c", "print('error: Cannot listen on x: taken'); raise SystemExit(3)"])
    process.wait()
    with pytest.raises(CliError) as caught:
        top._finish(process)
    assert (caught.value.message, caught.value.code) == ("Cannot listen on x: taken", 3)


def test_its_command_is_this_one_without_the_interface() -> None:
    assert top.command_of(["serve", "m.gguf", "--tui", "--port", "0"])[1:] == [
        "-m", "millstream", "serve", "m.gguf", "--port", "0",
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a child of its parent's death")
def test_it_ends_when_its_parent_is_killed() -> None:
    parent = (
        "import os, sys, time; from millstream.tui.child import ServerProcess\n"
        "child = ServerProcess([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        "print(child._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE, check=False, text=True)
    child = int(done.stdout)
    with suppress(ProcessLookupError):
        for _ in range(1200):
            os.kill(child, 0)
            with open(f"/proc/{child}/stat", encoding="ascii") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return  # ended; nobody of ours has to reap it
            subprocess.run(["sleep", "0.05"], check=True)
        raise AssertionError("it lives on")


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_draw_is_refused(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(top, "is_terminal", lambda _: True)
    with pytest.raises(CliError, match=r"TERM=.*cannot move its cursor"):
        top.top()


def test_a_pipe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "is_terminal", lambda _: False)
    with pytest.raises(CliError, match="needs a terminal"):
        top.serve_with_top("127.0.0.1", 0)
