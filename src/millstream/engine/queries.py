"""Questions to the engine process that wait for their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from millstream.engine.messages import StatsQuery, StatsReply
from millstream.ir.errors import ApiError, engine_failed

ANSWER_SECONDS = 10.0


class Queries:
    """``pending``: the engine was asked and has answered nothing since, whether anybody still waits or not."""

    def __init__(self) -> None:
        self.pending = False
        self._serials = count()
        self._waiting: dict[int, asyncio.Future[StatsReply | None]] = {}

    async def ask(self, send: Callable[[StatsQuery], None], *, sequences: bool) -> StatsReply | None:
        """A round trip; None: the process ended meanwhile.

        Raises:
            ApiError: 503; it did not answer in time, or there will be none.
        """
        serial = next(self._serials)
        future: asyncio.Future[StatsReply | None] = asyncio.get_running_loop().create_future()
        self._waiting[serial] = future
        self.pending = True
        try:
            send(StatsQuery(serial, sequences))
            return await asyncio.wait_for(future, ANSWER_SECONDS)
        except TimeoutError:
            raise engine_failed(f"The engine has not answered for {ANSWER_SECONDS:g} s.") from None
        finally:
            self._waiting.pop(serial, None)

    def answered(self, reply: StatsReply) -> None:
        """The engine told its counts; asked or not."""
        if reply.serial is None:
            return
        self.pending = False
        future = self._waiting.get(reply.serial)
        if future is not None and not future.done():
            future.set_result(reply)

    def ended(self, error: ApiError | None = None) -> None:
        """The engine that was asked is gone; ``error``: and there will be none."""
        self.pending = False
        for future in self._waiting.values():
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        self._waiting.clear()
