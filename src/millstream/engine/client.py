"""The engine as the API process sees it: a `TokenEngine` whose streams outlive the engine process."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import msgspec

from millstream.engine.config import EngineConfig
from millstream.engine.connection import EngineStartError
from millstream.engine.deadlines import Deadlines
from millstream.engine.journal import Journal
from millstream.engine.messages import (
    Abort,
    Accepted,
    Batch,
    Event,
    Pause,
    Reprioritise,
    Resume,
    StatsReply,
    Step,
    Submit,
)
from millstream.engine.protocol import EngineInfo, EngineStats, PauseReason, SequenceView, TokenDelta, TokenRequest
from millstream.engine.queries import Queries
from millstream.engine.restarts import Supervision
from millstream.engine.streams import SequenceStream
from millstream.engine.supervisor import Recovery, Supervisor
from millstream.engine.totals import Totals
from millstream.ir.errors import ApiError, engine_failed, engine_lost, invalid, overloaded

__all__ = ["EngineProcess", "EngineStartError"]

logger = logging.getLogger("millstream.engine")

_JUST_ENDED = "The engine has just ended and is being restarted."
_RETRY_AFTER_SECONDS = 2.0


class EngineProcess:
    """A `TokenEngine` and its `SequenceControl`, whose work is done by another process. Made by `start`; used from one
    event loop.

    If the process ends or hangs, it is started again and open streams go on where they were. ``lost`` resolves to the
    reason when that is given up.
    """

    def __init__(self, config: EngineConfig, worker: str, supervision: Supervision) -> None:
        self._config = config
        self._supervisor = Supervisor(config, worker, self, supervision)
        self._journal = Journal()
        self._deadlines = Deadlines()
        self._totals = Totals()
        self._timer: asyncio.TimerHandle | None = None
        self._streams: dict[str, SequenceStream] = {}
        self._queries = Queries()
        self._resumed = 0
        self._failure: str | None = None
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        worker: str = "millstream.engine.worker",
        supervision: Supervision = Supervision(),  # noqa: B008  (immutable)
    ) -> EngineProcess:
        """Start the process and wait until the model is loaded.

        ``worker`` is the module that runs in the process; any that speaks `millstream.engine.messages` will do.

        Raises:
            EngineStartError: the model cannot be loaded, or the process ended.
            OSError: no process can be had.
        """
        engine = cls(config, worker, supervision)
        await engine._supervisor.start()
        return engine

    @property
    def info(self) -> EngineInfo:
        return self._supervisor.info

    @property
    def pid(self) -> int:
        """Process id of the present engine process."""
        return self._supervisor.pid

    @property
    def recovery(self) -> Recovery | None:
        """How long the last restart took; None: there was none."""
        return self._supervisor.recovery

    async def submit(self, request: TokenRequest) -> SequenceStream:
        """Queue one sequence; see `TokenEngine.submit`.

        While the engine is restarted, requests wait in the same bounded queue; once a start has failed, they are
        refused until one succeeds.
        """
        self._require_hope()
        longest = len(request.prompt) + request.max_tokens
        if longest > self.info.kv_tokens:
            raise invalid(
                f"The request may grow to {longest} tokens, but the KV cache holds {self.info.kv_tokens}. "
                "Shorten the prompt or lower max_tokens."
            )
        if len(self._journal) >= self._config.max_sequences + self._config.max_waiting:
            raise overloaded(
                f"The queue is full: {len(self._journal)} sequences are running or waiting. Try again later.",
                retry_after=_RETRY_AFTER_SECONDS,
            )
        if request.id in self._journal:
            raise ValueError(f"request id {request.id!r} is in use")
        stream = SequenceStream(request.id, resume=self._read_on, leave=self.forget)
        self._streams[request.id] = stream
        self._journal.add(request)
        if request.deadline is not None:
            self._deadlines.add(request.id, request.deadline)
            self._set_timer()
        self._submit_due()
        return stream

    async def stats(self) -> EngineStats:
        """A round trip to the engine process, or the last counts while it is being restarted.

        Raises:
            ApiError: 503; the engine did not answer in time, or there will be none.
        """
        if self._failure is not None:
            raise engine_lost(self._failure)
        if await self._asked_engine() is None:
            return self._known(self._supervisor.outage or _JUST_ENDED)
        return self._known()

    async def sequences(self) -> list[SequenceView]:
        """See `SequenceControl.sequences`, as for the methods that follow."""
        if self._failure is not None:
            raise engine_lost(self._failure)
        reply = await self._asked_engine(sequences=True)
        return self._journal.views(reply.sequences if reply else [], up=reply is not None)

    def hold(self, request_id: str) -> bool:
        if request_id not in self._journal:
            return False
        self._pause(request_id, "held")
        return True

    def release(self, request_id: str) -> bool:
        if request_id not in self._journal:
            return False
        self._resume(request_id, "held")
        return True

    def reprioritise(self, request_id: str, priority: int) -> bool:
        if request_id not in self._journal:
            return False
        if self._journal.reprioritise(request_id, priority):
            self._supervisor.send(Reprioritise(request_id, priority))
        return True

    async def _asked_engine(self, *, sequences: bool = False) -> StatsReply | None:
        """A round trip to the engine process; None: there is none, or it ended meanwhile."""
        if not self._supervisor.up:
            return None
        return await self._queries.ask(self._supervisor.send, sequences=sequences)

    def _known(self, outage: str | None = None) -> EngineStats:
        """The last counts of the engine, with the requests that it does not know of."""
        unknown = self._journal.waits(up=outage is None)
        stats = self._totals.counts
        return msgspec.structs.replace(
            stats,
            outage=outage,
            waiting=stats.waiting + unknown.total(),
            waits=dict(unknown + Counter(stats.waits)),
            restarts=self._supervisor.restarts,
            resumed=self._resumed,
        )

    async def close(self, reason: str = "The engine was stopped.") -> None:
        """Stop the process. Open streams end with an error that says ``reason``."""
        self._fail(reason)
        await self._supervisor.close()

    @property
    def expects_answer(self) -> bool:
        return self._journal.busy or self._queries.pending

    def engine_event(self, event: Event) -> None:
        """See `millstream.engine.supervisor.Supervised`, as for the methods that follow."""
        if isinstance(event, Step):
            for delta in event.deltas:
                self._deliver(delta)
            if self._journal.kept_back:
                self._submit_due()
        elif isinstance(event, Batch):
            self._journal.batch(event.request_ids)
        elif isinstance(event, Accepted):
            self._journal.accepted(event.request_id)
        elif isinstance(event, StatsReply):
            self._totals.told(event.stats)
            self._queries.answered(event)

    def engine_down(self) -> None:
        for name in self._journal.crashed():
            logger.error("Request %s was at work when the engine ended, three times: it is given up.", name)
            self._deadlines.remove(name)
            self._streams.pop(name).fail(
                ApiError(
                    "The engine ended each of the three times that it worked on this request, so it is given up.",
                    type="server_error",
                    code="engine_error",
                    status=500,
                )
            )
        self._totals.ended()
        self._queries.ended()

    def engine_up(self) -> None:
        if (recovery := self._supervisor.recovery) is not None:
            text = "The engine is back after %.1f s, %.1f s of them to start; %d open requests go on."
            logger.warning(text, *recovery, len(self._journal))
        self._resumed += self._journal.begun
        self._submit_due()

    def engine_lost(self, reason: str) -> None:
        self._fail(reason)
        if not self.lost.done():
            self.lost.set_result(reason)

    def _deliver(self, delta: TokenDelta) -> None:
        shown = self._journal.record(delta)
        if shown is not None:
            stream = self._streams[shown.id]
            # One step may tell as much as that of a prompt: a reader that keeps up is not paused for it.
            lagging = stream.lags
            stream.push(shown)
            if shown.finish is not None:
                self._deadlines.remove(shown.id)
                del self._streams[shown.id]
            elif lagging and not stream.paused:
                stream.paused = True
                self._pause(stream.id, "paused_reader")

    def _pause(self, request_id: str, reason: PauseReason) -> None:
        told = self._journal.pause(request_id, reason)
        if told is not None:
            self._supervisor.send(Pause(request_id, reason) if told == "pause" else Abort(request_id))
        self._submit_due()

    def _resume(self, request_id: str, reason: PauseReason) -> None:
        if self._journal.resume(request_id, reason):
            self._supervisor.send(Resume(request_id, reason))
        else:
            self._submit_due()

    def _read_on(self, request_id: str) -> None:
        """The reader of a paused stream has read most of what waited for it."""
        if request_id in self._journal:
            self._resume(request_id, "paused_reader")

    def _set_timer(self) -> None:
        """Wake up at the next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (deadline := self._deadlines.next) is not None:
            # The event loop's clock is the monotonic one.
            self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        for name in self._deadlines.due(asyncio.get_running_loop().time()):
            stream = self._streams[name]
            self.forget(name)
            stream.push(TokenDelta(id=name, finish="timeout"))
        self._set_timer()

    def _submit_due(self) -> None:
        if self._supervisor.up:
            for request in self._journal.due():
                self._supervisor.send(Submit(request))

    def forget(self, request_id: str) -> None:
        """Nobody wants more of a request; unknown ids are ignored."""
        self._deadlines.remove(request_id)
        if self._streams.pop(request_id, None) is not None and self._journal.remove(request_id):
            self._supervisor.send(Abort(request_id))
            self._submit_due()

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        for name, stream in self._streams.items():
            self._deadlines.remove(name)
            stream.fail(engine_lost(reason))
        self._streams.clear()
        self._set_timer()
        self._journal.clear()
        self._queries.ended(engine_failed(reason))

    def _require_hope(self) -> None:
        """Raise if there is no engine and none can be expected soon."""
        if self._failure is not None:
            raise engine_lost(self._failure)
        if self._supervisor.outage is not None and (seconds := self._supervisor.retry_after) is not None:
            raise engine_failed(self._supervisor.outage, retry_after=max(seconds, 1.0))
