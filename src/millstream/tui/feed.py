"""Following a server that may go away: connect, read snapshots, wait a little longer after every failure."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from millstream.tui.client import Server
from millstream.tui.errors import ServerError
from millstream.tui.state import State

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 15.0
PATIENCE_SECONDS = 4.0
"""A snapshot that is so late is missed; that the connection is lost is known later."""


class Feed:
    """Keeps a `State` up to date and calls ``changed`` after each change."""

    def __init__(
        self, server: Server, state: State, interval: float, patience: float, changed: Callable[[], None]
    ) -> None:
        self._server = server
        self._state = state
        self._interval = interval
        self._patience = patience
        self._changed = changed
        self._now = asyncio.Event()
        self._heard = 0.0

    def retry_now(self) -> None:
        """Cut the wait before the next attempt short."""
        self._now.set()

    async def run(self) -> None:
        """Follow the server until cancelled."""
        failures = 0
        while True:
            before = self._state.snapshot
            try:
                await self._take()
                problem = ServerError("the server ended the stream; it is stopping or restarting.")
            except ServerError as error:
                problem = error
            failures = 1 if self._state.snapshot is not before else failures + 1
            await self._wait(problem, failures)

    async def _take(self) -> None:
        """Snapshots of one connection; beside it a watch that says when they stay away."""
        watch = asyncio.ensure_future(self._watch())
        try:
            async for snapshot in self._server.snapshots(self._interval):
                self._heard = asyncio.get_running_loop().time()
                self._state.take(snapshot)
                self._changed()
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        while True:
            await asyncio.sleep(1.0)
            silent = loop.time() - self._heard
            if silent >= self._interval + self._patience:
                self._state.wait(round(silent))
                self._changed()

    async def _wait(self, problem: ServerError, failures: int) -> None:
        seconds = backoff(failures, problem.retry_after)
        if problem.status not in (None, 503):
            self._state.starting = False  # it answers, and not that it loads its model
        self._now.clear()
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            self._state.lose(problem.message, math.ceil(left))
            self._changed()
            try:
                await asyncio.wait_for(self._now.wait(), min(1.0, left))
            except TimeoutError:
                continue
            break
        self._state.lose(problem.message, 0)
        self._changed()


def backoff(failures: int, retry_after: float | None = None) -> float:
    """Seconds before the next attempt after so many failures in a row: 1, 2, 4, 8, 15. A server's own wish counts
    up to the longest wait, so that one that is back early is seen."""
    wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(failures - 1, 10))
    return wait if retry_after is None else min(LONGEST_WAIT_SECONDS, max(wait, retry_after))
