"""The engine process: one model, one loop of steps, one socket to the process that started it.

Run as ``python -m millstream.engine.worker FD CONFIG``: FD is an inherited stream socket, CONFIG an `EngineConfig` as
JSON. The process ends when the socket is closed by the other side.
"""

from __future__ import annotations

import socket
import sys

import msgspec

from millstream.engine.config import EngineConfig
from millstream.engine.core import EngineCore
from millstream.engine.messages import (
    Abort,
    Event,
    FrameReader,
    Ready,
    StartFailed,
    StatsQuery,
    StatsReply,
    Step,
    Submit,
    command_decoder,
    frame,
)
from millstream.engine.protocol import EngineInfo
from millstream.scheduler.scheduler import Scheduler, SchedulerConfig

_RECEIVE_BYTES = 1 << 18


def load_core(config: EngineConfig) -> tuple[EngineCore, EngineInfo]:
    """Load the model and build everything around it.

    Raises:
        ModelFileError, ValueError, RuntimeError, MemoryError: with a message for the person who starts the engine.
    """
    from millstream.engine.constraints import FileConstraints
    from millstream.engine.runner import NativeRunner
    from millstream.engine.sizing import available_memory, plan_kv
    from millstream.models.loader import build_native, load_model_file
    from millstream.native import BLOCK_SIZE, active_isa

    isa = active_isa()
    with load_model_file(config.model_path) as model_file:
        spec = model_file.spec
        blocks, context = plan_kv(
            spec,
            block_size=BLOCK_SIZE,
            context_length=config.context_length,
            kv_bytes=config.kv_bytes,
            free_bytes=available_memory(),
        )
        model = build_native(
            model_file,
            kv_blocks=blocks,
            max_tokens=config.step_tokens,
            max_rows=config.max_sequences,
            threads=config.threads,
        )
    scheduler = Scheduler(
        SchedulerConfig(
            kv_blocks=blocks,
            block_size=BLOCK_SIZE,
            step_tokens=config.step_tokens,
            max_sequences=config.max_sequences,
            max_waiting=config.max_waiting,
            prefix_cache=config.prefix_cache,
        )
    )
    runner = NativeRunner(
        model,
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden,
        step_tokens=config.step_tokens,
        max_sequences=config.max_sequences,
        max_blocks=-(-context // BLOCK_SIZE),
    )
    info = EngineInfo(
        model=config.model_name,
        context_length=context,
        vocab_size=spec.vocab_size,
        kv_tokens=blocks * BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        isa=isa,
        threads=model.threads,
        weight_bytes=model.weight_bytes,
        kv_bytes=model.kv_bytes,
        hidden_size=spec.hidden,
    )
    return EngineCore(scheduler, runner, FileConstraints(config.model_path)), info


class Worker:
    """Alternates between the socket and the core: commands are read between steps, and waited for when idle."""

    def __init__(self, connection: socket.socket, core: EngineCore) -> None:
        self._connection = connection
        self._core = core
        self._reader = FrameReader()

    def run(self) -> None:
        """Serve until the other side closes the socket."""
        while self._receive(wait=not self._core.has_work):
            if self._core.has_work:
                deltas = self._core.step()
                if deltas:
                    self._send(Step(deltas))

    def _receive(self, *, wait: bool) -> bool:
        """Handle the commands that have arrived; False at end of file."""
        while True:
            try:
                data = self._connection.recv(_RECEIVE_BYTES, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            if not data:
                return False
            for body in self._reader.feed(data):
                self._handle(body)
            wait = False

    def _handle(self, body: bytes) -> None:
        command = command_decoder.decode(body)
        if isinstance(command, Submit):
            self._core.add(command.request)
        elif isinstance(command, Abort):
            self._core.abort(command.request_id)
        elif isinstance(command, StatsQuery):
            self._send(StatsReply(command.serial, self._core.stats()))

    def _send(self, event: Event) -> None:
        self._connection.sendall(frame(event))


def main() -> int:
    """Entry point of the process; returns its exit status."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    config = msgspec.json.decode(sys.argv[2], type=EngineConfig)
    from millstream.models.errors import ModelFileError

    try:
        try:
            core, info = load_core(config)
        except (ModelFileError, ValueError, RuntimeError, MemoryError, OSError) as error:
            connection.sendall(frame(StartFailed(str(error) or type(error).__name__)))
            return 1
        connection.sendall(frame(Ready(info)))
        Worker(connection, core).run()
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
