"""A server in a process of its own, whose words go to the Logs page instead of over the screen."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import re
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Sequence

from millstream.admin.views import LogLine
from millstream.ir.children import END_WITH_PARENT

_READY = re.compile(r"^ready: .* on (https?://\S+)")
_LOGGED = re.compile(
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) ([\w.\-]+): (.*)$", re.S
)
_LEVELS: dict[str, str] = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning"}
_LINE_BYTES = 64 * 1024
_KEPT_LINES = 2000
_LAST_LINES = 20
_LOGGER = "serve"


class ServerProcess:
    """Runs ``command`` until `stop`. If this process dies, the server gets SIGTERM and finishes its requests.

    Raises `OSError` if it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C at the terminal is for this process, which decides what it means.
            start_new_session=True,
            preexec_fn=END_WITH_PARENT,
        )
        self._lock = threading.Lock()
        self._lines: collections.deque[LogLine] = collections.deque(maxlen=_KEPT_LINES)
        self._seen = 0
        self._url: str | None = None
        self._reader = threading.Thread(target=self._read, name="server-output", daemon=True)
        self._reader.start()

    @property
    def returncode(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    @property
    def url(self) -> str | None:
        """Where it listens, once it has said so."""
        return self._url

    def last_words(self) -> str:
        """The last line that tells something; empty if there was none."""
        self._reader.join(1)
        with self._lock:
            lines = [line.message.strip() for line in self._lines][-_LAST_LINES:]
        return next((line.removeprefix("error: ") for line in reversed(lines) if line), "")

    async def logs(self) -> AsyncIterator[LogLine]:
        """What it has said and says, until it ends."""
        sent = 0
        while True:
            with self._lock:
                ended = not self._reader.is_alive()
                new = list(self._lines)[len(self._lines) - min(len(self._lines), self._seen - sent) :]
                sent = self._seen
            for line in new:
                yield line
            if ended:
                return
            await asyncio.sleep(0.1)

    async def ended(self) -> None:
        """Return when it has ended."""
        while self.returncode is None:  # noqa: ASYNC110 (processes tell no event loop; threads cannot be cancelled)
            await asyncio.sleep(0.1)

    def stop(self) -> None:
        """Let it finish its requests and end; called again: end now."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        return self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        level = "info"
        with self._process.stdout as output:
            while raw := output.readline(_LINE_BYTES):
                text = raw.decode("utf-8", "replace").rstrip("\r\n")
                if match := _READY.match(text):
                    self._url = match[1]
                line = read_line(text, time.time(), level)
                level = line.level
                with self._lock:
                    self._lines.append(line)
                    self._seen += 1


def read_line(text: str, now: float, before: str = "info") -> LogLine:
    """A line of a server's output. ``before``: the level of the line before, which set-in lines share."""
    level, logger, message = "info", _LOGGER, text
    if match := _LOGGED.match(text):
        level, logger, message = _LEVELS.get(match[1], "error"), match[2], match[3]
    elif text.startswith(("error:", "Traceback ")):
        level = "error"
    elif text.startswith((" ", "\t")):
        level = before
    return LogLine(time=now, level=level, logger=logger, message=message)  # type: ignore[arg-type]
