"""The engine process: one model, one loop of steps, one socket to the process that started it.

Two threads: one takes commands off the socket and answers questions about the engine at once, also while a step runs
(the native core does not hold the GIL); the other steps, and carries out the commands between two steps.

Run as ``python -m millstream.engine.worker FD CONFIG``: FD is an inherited stream socket, CONFIG an `EngineConfig` as
JSON. The process ends when the socket is closed by the other side.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from millstream.engine.config import EngineConfig
from millstream.engine.messages import (
    Abort,
    Accepted,
    Batch,
    Command,
    Event,
    FrameReader,
    Order,
    Pause,
    Progress,
    ProgressQuery,
    Ready,
    Resume,
    StartFailed,
    StatsQuery,
    StatsReply,
    Step,
    Submit,
    command_decoder,
    frame,
)
from millstream.engine.protocol import EngineStats
from millstream.engine.vitals import leave_vitals

if TYPE_CHECKING:
    from millstream.engine.core import EngineCore

log = logging.getLogger(__name__)

_RECEIVE_BYTES = 1 << 18

IDLE_SECONDS = 1.0
"""An engine that has had nothing to do for so long prepares for constraints, which holds up a request that comes just
then; not earlier, as many start an engine to ask it something at once."""
_TELL_SECONDS = 0.5
"""How often counts are told while steps are made: they are lost with the process otherwise."""
_END_SECONDS = 5.0
"""How long the end waits for the thread that reads, which may be sending to somebody who reads nothing."""


class Worker:
    """Alternates between commands and steps of the core; waits for a command when there is nothing to do.

    A request that the core is not prepared for is put aside while others run.
    """

    def __init__(self, connection: socket.socket, core: EngineCore, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._connection = connection
        self._core = core
        self._batch: list[str] = []
        self._tokens = 0
        self._idle_seconds = idle_seconds
        self._aside: dict[str, list[Order]] = {}
        """What was said of requests that were put aside, in order, by their ids."""
        self._inbox: SimpleQueue[Order | None] = SimpleQueue()
        """Commands in order; None: the other side has closed the socket."""
        self._told = 0.0
        self._sending = threading.Lock()
        self._received = self._added = 0
        """Requests so far; each number is written by one thread."""

    def run(self) -> None:
        """Serve until the other side closes the socket."""
        listener = threading.Thread(target=self._listen, name="commands", daemon=True)
        listener.start()
        try:
            while self._take_commands():
                if self._core.has_work:
                    self._send(Step(self._core.step(self._announce)))
                    self._tell()
        finally:
            # A thread that lives on would keep the core alive beyond the end of the interpreter, which reports that.
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RD)
            listener.join(_END_SECONDS)

    def _tell(self) -> None:
        """Tell the counts if that is due, or if no further step will."""
        now = time.monotonic()
        if now - self._told >= _TELL_SECONDS or not self._core.has_work:
            self._told = now
            self._send(StatsReply(None, self._stats()))

    def _announce(self, batch: list[str], tokens: int) -> None:
        """Tell who is in the step that begins, before it can do harm."""
        if batch != self._batch or not self._tokens <= 2 * tokens <= 2 * self._tokens:
            self._batch, self._tokens = batch, tokens
            self._send(Batch(batch, tokens))

    def _take_commands(self) -> bool:
        """Carry out the commands that have come, waiting for one if the core is idle; False at the end of them."""
        self._take_aside()
        wait = not self._core.has_work
        if wait:
            self._batch = []  # the next step is announced whatever it is, as it is measured from then on
        # Not more than are there now: whoever sends without pause must not keep the core from its steps.
        for _ in range(max(self._inbox.qsize(), 1) if wait else self._inbox.qsize()):
            command = self._next_command()
            if command is None:
                return False
            self._carry_out(command)
        return True

    def _next_command(self) -> Order | None:
        """The next command, waited for; None at the end of them."""
        try:
            return self._inbox.get(timeout=self._idle_seconds)
        except Empty:
            self._core.prepare()
            return self._inbox.get()

    def _carry_out(self, order: Order) -> None:
        request_id = order.request.id if isinstance(order, Submit) else order.request_id
        if isinstance(order, Submit):
            if self._core.has_work and not self._core.prepared(order.request):
                self._aside[request_id] = [order]
                return
            self._core.add(order.request)
            self._added += 1
            self._send(Accepted(request_id))
        elif isinstance(order, Abort):
            if self._aside.pop(request_id, None):
                self._added += 1
            self._core.abort(request_id)
        elif request_id in self._aside:
            self._aside[request_id].append(order)
        elif isinstance(order, Pause):
            self._core.pause(request_id, order.reason)
        elif isinstance(order, Resume):
            self._core.resume(request_id, order.reason)
        else:
            self._core.reprioritise(request_id, order.priority)

    def _take_aside(self) -> None:
        """Take the requests that were put aside, if the core is prepared for them or has nothing else to do."""
        for request_id, orders in list(self._aside.items()):
            submit = orders[0]
            if self._core.has_work and isinstance(submit, Submit) and not self._core.prepared(submit.request):
                continue
            del self._aside[request_id]
            for order in orders:
                self._carry_out(order)

    def _listen(self) -> None:
        """Read the socket until its end."""
        leave_vitals()
        reader = FrameReader()
        try:
            while data := self._connection.recv(_RECEIVE_BYTES):
                for body in reader.feed(data):
                    self._sort(command_decoder.decode(body))
        except OSError:
            pass
        except Exception:
            log.exception("a command could not be read")
        finally:
            self._inbox.put(None)

    def _sort(self, command: Command) -> None:
        if isinstance(command, StatsQuery):
            self._send(StatsReply(command.serial, self._stats(), self._core.sequences() if command.sequences else []))
        elif isinstance(command, ProgressQuery):
            self._send(Progress(self._core.progress))
        else:
            self._received += isinstance(command, Submit)
            self._inbox.put(command)

    def _stats(self) -> EngineStats:
        """Counts of now. Requests that the core does not have yet wait too."""
        stats = self._core.stats()
        unseen = self._received - self._added
        return msgspec.structs.replace(stats, waiting=stats.waiting + unseen) if unseen > 0 else stats

    def _send(self, event: Event) -> None:
        data = frame(event)
        with self._sending:
            self._connection.sendall(data)


def main() -> int:
    """Entry point of the process; returns its exit status."""
    # Ctrl-C is for the process that started it, also where all processes are sent it: its open answers are finished.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # until all is loaded: nothing of it becomes garbage
    connection = socket.socket(fileno=int(sys.argv[1]))
    config = msgspec.json.decode(sys.argv[2], type=EngineConfig)
    from millstream.engine.loading import load_core
    from millstream.models.errors import ModelFileError

    try:
        try:
            core, info = load_core(config)
        except (ModelFileError, ValueError, RuntimeError, MemoryError, OSError) as error:
            connection.sendall(frame(StartFailed(str(error) or type(error).__name__)))
            return 1
        gc.freeze()  # what was loaded stays: collections need not look through it
        gc.enable()
        connection.sendall(frame(Ready(info)))
        Worker(connection, core).run()
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
