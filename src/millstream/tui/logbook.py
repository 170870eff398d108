"""The log lines that are kept, and who reads them from where."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from millstream.admin.views import LogLine
from millstream.tui.errors import ServerError
from millstream.tui.feed import backoff

KEPT_LINES = 5000
_MESSAGE_CHARS = 8000

LogSource = Callable[[], AsyncIterator[LogLine]]
"""Opens a stream of log lines: the last ones, then those that follow. May raise `ServerError`."""


class LogBook:
    """The newest lines. ``problem``: why no more come; empty while they do."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=KEPT_LINES)
        self._seen = 0
        self._newest = 0.0
        self._at_newest: set[LogLine] = set()
        self._again = False
        self.problem = ""

    @property
    def count(self) -> int:
        """How many lines have come; those before the newest `KEPT_LINES` are gone."""
        return self._seen

    def after(self, count: int) -> Iterator[LogLine]:
        """The kept lines that came after the first ``count``."""
        gone = self._seen - len(self._lines)
        return itertools.islice(self._lines, max(0, count - gone), None)

    def reopen(self) -> None:
        """The stream begins anew: it repeats what the server still has of what was read."""
        self._again = True

    def add(self, line: LogLine) -> None:
        """Keep a line, unless the stream began anew and it is known."""
        if len(line.message) > _MESSAGE_CHARS:
            line = LogLine(
                time=line.time,
                level=line.level,
                logger=line.logger[:100],
                message=line.message[:_MESSAGE_CHARS] + "…",
                request_id=line.request_id,
            )
        if self._again and (line.time < self._newest or line in self._at_newest):
            return
        if line.time > self._newest:
            self._again = False
            self._newest = line.time
            self._at_newest.clear()
        if line.time == self._newest:
            self._at_newest.add(line)
        self._lines.append(line)
        self._seen += 1


async def follow(source: LogSource, book: LogBook) -> None:
    """Read until cancelled; a stream that fails is opened again after a while."""
    failures = 0
    while True:
        before = book.count
        book.reopen()
        try:
            async for line in source():
                book.problem = ""
                book.add(line)
            book.problem = "the log's stream has ended."
            retry_after = None
        except ServerError as error:
            book.problem, retry_after = error.message, error.retry_after
        failures = 1 if book.count > before else failures + 1
        await asyncio.sleep(backoff(failures, retry_after))
