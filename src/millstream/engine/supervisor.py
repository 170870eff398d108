"""Keeps one engine process running: starts it again when it ends, ends it when it hangs, gives up after a limit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import NamedTuple, Protocol

import msgspec

from millstream.engine.config import EngineConfig
from millstream.engine.connection import EngineConnection, EngineStartError
from millstream.engine.messages import Batch, Command, Event, Progress, ProgressQuery, StatsReply, Step
from millstream.engine.protocol import EngineInfo
from millstream.engine.restarts import RestartPolicy, StepTimes, Supervision, Watchdog
from millstream.engine.vitals import Vitals, share_of_time, vitals

logger = logging.getLogger("millstream.engine")


class Supervised(Protocol):
    """Who works with the engine. Everything is called on the event loop, in the order in which it happened."""

    @property
    def expects_answer(self) -> bool:
        """Whether the engine has work or was asked something, so that its silence means that it hangs."""
        ...

    def engine_event(self, event: Event) -> None: ...

    def engine_down(self) -> None:
        """The process is gone and will be started again; nothing that it was sent counts any more."""
        ...

    def engine_up(self) -> None:
        """A new process is ready."""
        ...

    def engine_lost(self, reason: str) -> None:
        """There will be no engine any more."""
        ...


class Recovery(NamedTuple):
    """How long there was no engine: in all, and for the start that succeeded (mostly, loading the model)."""

    seconds: float
    start_seconds: float


class Supervisor:
    """Made by its constructor, run by `start`, ended by `close`; used from one event loop."""

    def __init__(self, config: EngineConfig, worker: str, client: Supervised, supervision: Supervision) -> None:
        self._config = config
        self._worker = worker
        self._client = client
        self._supervision = supervision
        self._policy = RestartPolicy(supervision)
        self._watchdog = Watchdog(supervision)
        self._times = StepTimes(supervision)
        self._progress: int | None = None
        self._step_tokens = 0
        self._step_begun = 0.0
        self._clock = asyncio.get_running_loop().time
        self._connection: EngineConnection | None = None
        self._info: EngineInfo | None = None
        self._ready_at = 0.0
        self._worked = False
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0
        """How often a new process took over."""
        self.recovery: Recovery | None = None
        """The last outage that is over."""
        self.outage: str | None = None
        """Why there is no engine at the moment; None while there is one."""

    async def start(self) -> None:
        """Start the first process, and watch it from then on.

        Raises:
            EngineStartError, OSError: the first start failed; it is not tried again.
        """
        await self._open(deadline=None)
        self._task = asyncio.create_task(self._supervise())

    @property
    def info(self) -> EngineInfo:
        assert self._info is not None
        return self._info

    @property
    def pid(self) -> int:
        """Process id of the engine process, the last one if it has ended."""
        assert self._connection is not None
        return self._connection.pid

    @property
    def up(self) -> bool:
        """Whether messages reach an engine."""
        return self.outage is None and self._connection is not None and self._connection.alive

    @property
    def retry_after(self) -> float | None:
        """Seconds until the next attempt if the last start failed; None while there is hope for an early end."""
        return self._policy.delay if self._policy.failures else None

    def send(self, command: Command) -> None:
        """Send a message to the process; lost if there is none."""
        if self._connection is not None:
            self._connection.send(command)

    async def close(self) -> None:
        """Stop the process; nothing is called any more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._connection is not None:
            await self._connection.close()

    async def _open(self, deadline: float | None) -> None:
        self._connection = await EngineConnection.open(self._config, self._worker, self._handle, deadline=deadline)
        self._ready_at = asyncio.get_running_loop().time()
        self._worked = False
        self._watchdog.heard()
        if self._info is None:
            self._info = info = self._connection.info
            # What was promised to open requests must hold in every later process, whatever memory is free then.
            self._config = msgspec.structs.replace(
                self._config, context_length=info.context_length, kv_bytes=info.kv_bytes or self._config.kv_bytes
            )

    def _handle(self, event: Event) -> None:
        if isinstance(event, Progress):
            if event.mark != self._progress:
                self._watchdog.heard()
            self._progress = event.mark
            return
        self._worked = True
        if not isinstance(event, StatsReply):  # it comes from another thread than the steps, which may hang
            self._watchdog.heard()
        self._measure(event)
        self._client.engine_event(event)

    def _measure(self, event: Event) -> None:
        """Steps follow each other without a pause while there is work; the first is announced."""
        if isinstance(event, Batch):
            self._step_tokens = event.tokens
            self._step_begun = self._clock()
        elif isinstance(event, Step):
            now = self._clock()
            self._times.ran(self._step_tokens, now - self._step_begun)
            self._step_begun = now

    async def _supervise(self) -> None:
        try:
            while await self._restarted(await self._watch()):
                pass
        except Exception:
            logger.exception("The supervision of the engine failed.")
            self._give_up("internal error")

    async def _watch(self) -> str:
        """Wait for the end of the process; returns its reason."""
        connection = self._connection
        assert connection is not None
        seen: Vitals | None = None
        while not connection.ended.done():
            await asyncio.wait([connection.ended], timeout=self._watchdog.interval)
            busy = self._client.expects_answer
            before, seen = seen, vitals(connection.pid) if busy else None
            share = share_of_time(before, seen, self._watchdog.interval)
            deadline = self._times.deadline(self._step_tokens)
            if self._watchdog.tick(busy=busy, deadline=deadline, share=share) and connection.alive:
                connection.kill(f"no sign of life for {deadline:.3g} s")
                await connection.wait()
            elif busy and self._watchdog.silent:
                connection.send(ProgressQuery())
        ready_seconds = asyncio.get_running_loop().time() - self._ready_at
        self._policy.ended(ready_seconds=ready_seconds, worked=self._worked)
        return connection.ended.result()

    async def _restarted(self, reason: str) -> bool:
        """Start a new process after one has ended; whether that succeeded."""
        logger.error("The engine process %d ended (%s). It is started again.", self.pid, reason)
        self.outage = f"The engine is being restarted; it ended ({reason})."
        self._client.engine_down()
        ended = self._clock()
        while not self._policy.exhausted:
            await asyncio.sleep(self._policy.delay)
            begun = self._clock()
            try:
                await self._open(self._supervision.start_deadline)
            except (EngineStartError, OSError) as error:
                reason = str(error)
                self._policy.start_failed()
                failures = self._policy.failures
                logger.error("Start %d of %d failed: %s", failures, self._supervision.start_failures, reason)
                self.outage = f"The engine is being restarted; {failures} starts in a row failed, the last: {reason}."
                continue
            self.outage = None
            self.restarts += 1
            now = self._clock()
            self.recovery = Recovery(now - ended, now - begun)
            self._client.engine_up()
            return True
        self._give_up(reason)
        return False

    def _give_up(self, reason: str) -> None:
        self.outage = f"The engine ended and cannot be started again: {reason}."
        logger.critical(self.outage)
        self._client.engine_lost(self.outage)
