"""Serving, draining, stopped: which requests are open, and whether new ones are taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millstream.ir.errors import ApiError


class Lifecycle:
    """Lives on the event loop of the server."""

    def __init__(self) -> None:
        self.draining = False
        self._open: set[asyncio.Task[Any]] = set()
        self._watching: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def open_requests(self) -> int:
        """Requests that are being answered."""
        return len(self._open)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Counts the current task as an open request."""
        task = asyncio.current_task()
        if task is None or task in self._open:
            yield
            return
        self._open.add(task)
        self._idle.clear()
        try:
            yield
        finally:
            self._done(task)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The current task only looks on: it is no request that is being answered, and nobody waits for its end."""
        task = asyncio.current_task()
        if task is None:
            yield
            return
        self._done(task)
        self._watching.add(task)
        try:
            yield
        finally:
            self._watching.discard(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._open.discard(task)
        if not self._open:
            self._idle.set()

    def drain(self) -> None:
        """Take no new work from now on."""
        self.draining = True

    async def wait_idle(self, seconds: float) -> bool:
        """Wait until no request is open, at most this long; whether that came true."""
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def cancel_open(self) -> None:
        """End what is still open: streams tell their clients why."""
        for task in self._open:
            task.cancel()

    def cancel_watching(self) -> None:
        """End what looks on."""
        for task in self._watching:
            task.cancel()


def shutting_down() -> ApiError:
    """A 503: another instance, or this one after its restart, will take the request."""
    return ApiError(
        "The server is shutting down.", type="server_error", code="shutting_down", status=503, retry_after=5
    )
