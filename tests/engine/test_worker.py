"""The worker's loop: requests that need what is not prepared yet wait, and nobody with them."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from millstream.engine.config import EngineConfig
from millstream.engine.core import EngineCore, GrammarCounts
from millstream.engine.messages import (
    Abort,
    Accepted,
    Command,
    Event,
    FrameReader,
    Pause,
    Ready,
    Resume,
    StatsQuery,
    StatsReply,
    Step,
    Submit,
    event_decoder,
    frame,
)
from millstream.engine.protocol import SamplingParams, TokenRequest
from millstream.engine.worker import Worker
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Chunk, Sampled, Scheduler
from millstream.scheduler.sequence import Constraint
from support.scripted_runner import ScriptedRunner
from support.tiny_models import build_tiny_model

LONG = 400
"""Tokens of a request that runs while a test looks at others."""


class SlowConstraints:
    """`Constraints` that are prepared when the test says so; a grammar means nothing to them."""

    def __init__(self) -> None:
        self.asked, self.done = threading.Event(), threading.Event()

    def __call__(self, request: TokenRequest) -> Constraint | None:
        if request.grammar is not None:
            assert self.done.wait(20)
        return None

    def prepare(self) -> None:
        self.asked.set()

    def prepared(self, request: TokenRequest) -> bool:
        if request.grammar is None:
            return True
        self.prepare()
        return self.done.is_set()

    def counts(self) -> GrammarCounts:
        return GrammarCounts()


class GatedRunner(ScriptedRunner):
    """Every step but the first ``free`` waits for a permit."""

    def __init__(self, free: int) -> None:
        super().__init__(4)
        self.permits = threading.Semaphore(free)

    def execute(self, chunks: list[Chunk]) -> Sampled:
        assert self.permits.acquire(timeout=20)
        return super().execute(chunks)


class Peer:
    """The other side of the worker's socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = FrameReader()
        self._events: list[Event] = []
        self._serials = count()
        self.said: list[Event] = []

    def send(self, *commands: Command) -> None:
        self._connection.sendall(b"".join(map(frame, commands)))

    def next(self) -> Event:
        while not self._events:
            data = self._connection.recv(1 << 16)
            assert data, "the worker has ended"
            self._events += [event_decoder.decode(body) for body in self._reader.feed(data)]
        self.said.append(self._events.pop(0))
        return self.said[-1]

    def until_accepted(self, name: str) -> None:
        while self.next() != Accepted(name):
            pass

    def until_finished(self, name: str) -> list[int]:
        """All tokens that were told of a request, once it has ended."""
        while not any(delta.finish for delta in self.deltas(name)):
            self.next()
        return [token for delta in self.deltas(name) for token in delta.tokens]

    def deltas(self, name: str) -> list:  # type: ignore[type-arg]
        return [d for event in self.said if isinstance(event, Step) for d in event.deltas if d.id == name]

    def arrived(self) -> None:
        """What was sent is there: questions are answered by the thread that reads, in order."""
        self.waiting()

    def waiting(self) -> int:
        serial = next(self._serials)
        self.send(StatsQuery(serial))
        while not isinstance(event := self.next(), StatsReply) or event.serial != serial:
            pass  # counts are told unasked too
        return event.stats.waiting


@contextmanager
def worker(
    constraints: SlowConstraints, runner: ScriptedRunner | None = None, *, idle_seconds: float = 60
) -> Iterator[Peer]:
    scheduler = Scheduler(SchedulerConfig(kv_blocks=512, block_size=4))
    core = EngineCore(scheduler, runner or ScriptedRunner(4), constraints)
    here, there = socket.socketpair()
    here.settimeout(20)

    def run() -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            Worker(there, core, idle_seconds=idle_seconds).run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield Peer(here)
    finally:
        constraints.done.set()
        if isinstance(runner, GatedRunner):
            runner.permits.release(10 * LONG)
        here.close()
        thread.join(20)
        there.close()
    assert not thread.is_alive()


def ask(name: str, *, tokens: int = 5, grammar: str | None = None) -> Submit:
    sampling = SamplingParams(temperature=0.0)
    return Submit(TokenRequest(name, [1, 2, 3], sampling, tokens, grammar=grammar, speculation=False))


def test_others_run_while_one_waits_for_its_preparation() -> None:
    constraints, runner = SlowConstraints(), GatedRunner(free=1)
    with worker(constraints, runner) as peer:
        peer.send(ask("plain", tokens=LONG))
        peer.until_accepted("plain")
        peer.send(ask("held", grammar="g"))
        peer.arrived()
        runner.permits.release(LONG + 10)
        assert constraints.asked.wait(20)
        assert len(peer.until_finished("plain")) == LONG
        assert Accepted("held") not in peer.said
        constraints.done.set()
        assert len(peer.until_finished("held")) == 5
        assert peer.said.index(Accepted("held")) >= 0


def test_one_that_is_put_aside_is_taken_while_others_run() -> None:
    constraints, runner = SlowConstraints(), GatedRunner(free=3)
    with worker(constraints, runner) as peer:
        peer.send(ask("plain", tokens=LONG), ask("held", grammar="g"))
        peer.arrived()
        runner.permits.release()  # three steps may have been made before the second came
        assert constraints.asked.wait(20)
        constraints.done.set()
        runner.permits.release(20)
        assert len(peer.until_finished("held")) == 5
        assert not any(delta.finish for delta in peer.deltas("plain"))


def test_what_is_said_of_a_request_that_is_put_aside_counts() -> None:
    constraints, runner = SlowConstraints(), GatedRunner(free=1)
    with worker(constraints, runner) as peer:
        peer.send(ask("plain", tokens=LONG))
        peer.until_accepted("plain")
        peer.send(*(ask(name, grammar="g") for name in ("gone", "paused", "again")))
        peer.send(
            Abort("gone"),
            Pause("paused", "held"),
            Pause("again", "held"),
            Resume("again", "held"),
            ask("last"),
        )
        peer.arrived()
        runner.permits.release(60)
        peer.until_finished("last")
        assert peer.waiting() == 2, "those that are put aside"
        constraints.done.set()
        runner.permits.release(60)
        assert len(peer.until_finished("again")) == 5
        assert peer.deltas("gone") == peer.deltas("paused") == []
        peer.send(Resume("paused", "held"))
        peer.arrived()
        runner.permits.release(100)
        assert len(peer.until_finished("paused")) == 5
        assert peer.waiting() == 0


@patch("millstream.engine.worker._TELL_SECONDS", 0.0)
def test_counts_that_are_told_unasked_have_those_that_are_put_aside() -> None:
    constraints, runner = SlowConstraints(), GatedRunner(free=0)
    with worker(constraints, runner) as peer:
        peer.send(ask("plain", tokens=LONG))
        peer.until_accepted("plain")
        peer.send(ask("held", grammar="g"))
        peer.arrived()
        runner.permits.release(3)
        told: list[int] = []
        while len(told) < 3:
            if isinstance(event := peer.next(), StatsReply):
                told.append(event.stats.waiting)
        assert told == [1, 1, 1]


@pytest.mark.parametrize("idle_seconds", [0.01, 60])
def test_an_idle_engine_prepares(idle_seconds: float) -> None:
    constraints = SlowConstraints()
    with worker(constraints, idle_seconds=idle_seconds) as peer:
        peer.send(ask("plain"))
        peer.until_finished("plain")
        if idle_seconds < 1:
            assert constraints.asked.wait(20)
        else:
            assert not constraints.asked.is_set()


class LateQueue(SimpleQueue[Any]):
    """Whoever puts something in it goes on later."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item)
        time.sleep(0.2)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_it_runs_on_after_its_end(fails: bool) -> None:
    """Or the core would outlive the interpreter."""
    core = EngineCore(Scheduler(SchedulerConfig(kv_blocks=8, block_size=4)), ScriptedRunner(4), SlowConstraints())
    here, there = socket.socketpair()
    failing = patch.object(core, "step", side_effect=RuntimeError("no more")) if fails else nullcontext()
    with here, there, failing, patch("millstream.engine.worker.SimpleQueue", LateQueue):
        if fails:
            here.sendall(frame(ask("a")))
        else:
            here.close()
        with pytest.raises(RuntimeError, match="no more") if fails else nullcontext():
            Worker(there, core).run()
        assert "commands" not in {thread.name for thread in threading.enumerate()}


def test_an_interrupt_is_for_the_process_that_started_it(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "tiny.gguf")
    config = EngineConfig(model_path=str(model), model_name="tiny", kv_bytes=1 << 20, threads=1)
    here, there = socket.socketpair()
    number = there.fileno()
    command = [sys.executable, "-m", "millstream.engine.worker", str(number), msgspec.json.encode(config).decode()]
    with here, subprocess.Popen(command, pass_fds=[number], stderr=subprocess.PIPE, text=True) as process:
        there.close()
        here.settimeout(60)
        peer = Peer(here)
        assert isinstance(peer.next(), Ready)
        process.send_signal(signal.SIGINT)
        assert peer.waiting() == 0
        here.shutdown(socket.SHUT_RDWR)
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
