"""The stream of an answer as it is read: what clients experience is measured here, and what operators see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from millstream.ir.deltas import Delta, Error, Finish, Start
from millstream.ir.guard import error_of
from millstream.ir.provider import DeltaStream
from millstream.server.admin.entry import End, Entry, cancelled_by_operator, clock
from millstream.server.metrics import Metrics

Leave = Callable[[Entry, End | None, str], None]


class MeasuredStream:
    """A guarded stream again, which an operator's `Entry.cancel` ends with an `Error`."""

    def __init__(self, stream: DeltaStream, entry: Entry, metrics: Metrics, leave: Leave) -> None:
        self._stream = stream
        self._entry = entry
        self._metrics = metrics
        self._leave = leave
        self._last: dict[int, float] = {}
        self._counted = False
        self._told = False
        entry.close = stream.aclose

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        entry = self._entry
        if entry.cancelled:
            return await self._end_cancelled()
        entry.reader = asyncio.current_task()
        try:
            delta = await self._stream.__anext__()
        except (asyncio.CancelledError, StopAsyncIteration) as stopped:
            if isinstance(stopped, StopAsyncIteration) or not entry.interrupted():
                raise
            return await self._end_cancelled()
        finally:
            entry.reader = None
        entry.see(delta)
        kind = type(delta)
        if kind is not Error and kind is not Finish and kind is not Start:
            self._token(delta.choice)  # type: ignore[union-attr]
            return delta
        entry.silent += 1
        if kind is Error:
            self._fail(delta)  # type: ignore[arg-type]
        elif kind is Finish:
            self._finish(delta)  # type: ignore[arg-type]
        else:
            self._start(delta)  # type: ignore[arg-type]
        return delta

    async def aclose(self) -> None:
        self._count("cancelled")
        self._leave(self._entry, None, "")
        await self._stream.aclose()

    def _token(self, choice: int) -> None:
        now = clock()
        last = self._last.get(choice)
        if last is not None:
            self._metrics.inter_token.observe(now - last, now)
        elif not self._last:
            entry = self._entry
            entry.begin_decode(now)
            self._metrics.first_token.observe(now - entry.since, now)
            if entry.started is not None:
                self._metrics.prefill.observe(now - entry.started)
        self._last[choice] = now

    def _start(self, start: Start) -> None:
        entry = self._entry
        entry.usage.feed(start)
        if entry.started is None:
            now = clock()
            entry.begin_prefill(start, now)
            self._metrics.queue.observe(now - entry.since)

    def _finish(self, finish: Finish) -> None:
        entry = self._entry
        entry.usage.feed(finish)
        entry.reasons.append(finish.reason)
        self._metrics.choice(finish.reason)
        if entry.usage.open_choices == 0:
            self._count("ok")
            self._metrics.served(entry.facts.tenant, entry.usage.closed)
            if entry.first is not None:
                self._metrics.decode.observe(clock() - entry.first)
            self._leave(entry, "finished", ", ".join(dict.fromkeys(entry.reasons)))

    def _fail(self, error: Error) -> None:
        self._count("refused" if error.status < 500 else "failed")
        self._entry.problem = error.code or str(error.status)
        self._leave(self._entry, "failed", self._entry.problem)

    async def _end_cancelled(self) -> Delta:
        """Tell the reader, once, that an operator ended the request."""
        await self._stream.aclose()
        self._count("cancelled")
        if self._told:
            raise StopAsyncIteration
        self._told = True
        return error_of(cancelled_by_operator())

    def _count(self, outcome: str) -> None:
        if not self._counted:
            self._counted = True
            self._metrics.request(self._entry.facts.surface, outcome)
