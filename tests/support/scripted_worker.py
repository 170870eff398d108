"""An engine process without a model: the real worker loop over the scripted runner.

``EngineConfig.model_name`` chooses how it behaves: "slow" takes 20 ms a step, "stuck" never ends one, "broken"
fails to start, "dies" exits at once.
"""

from __future__ import annotations

import socket
import sys
import time

import msgspec

from millstream.engine.config import EngineConfig
from millstream.engine.core import EngineCore
from millstream.engine.messages import Ready, StartFailed, frame
from millstream.engine.protocol import EngineInfo
from millstream.engine.worker import Worker
from millstream.scheduler.scheduler import Chunk, Sampled, Scheduler, SchedulerConfig
from support.scripted_runner import VOCABULARY, ScriptedRunner

BLOCK = 4
BLOCKS = 64


class SlowRunner(ScriptedRunner):
    def execute(self, chunks: list[Chunk]) -> Sampled:
        time.sleep(0.02)
        return super().execute(chunks)


class StuckRunner(ScriptedRunner):
    def execute(self, chunks: list[Chunk]) -> Sampled:
        while True:
            time.sleep(60)


RUNNERS = {"slow": SlowRunner, "stuck": StuckRunner}


def main() -> int:
    connection = socket.socket(fileno=int(sys.argv[1]))
    config = msgspec.json.decode(sys.argv[2], type=EngineConfig)
    if config.model_name == "dies":
        return 7
    if config.model_name == "broken":
        connection.sendall(frame(StartFailed("the model file is broken")))
        return 1
    info = EngineInfo(
        model=config.model_name,
        context_length=BLOCK * BLOCKS,
        vocab_size=VOCABULARY,
        kv_tokens=BLOCK * BLOCKS,
        block_size=BLOCK,
        isa="none",
        threads=1,
    )
    scheduler = Scheduler(
        SchedulerConfig(
            kv_blocks=BLOCKS,
            block_size=BLOCK,
            step_tokens=config.step_tokens,
            max_sequences=config.max_sequences,
            max_waiting=config.max_waiting,
        )
    )
    runner = RUNNERS.get(config.model_name, ScriptedRunner)(BLOCK)
    connection.sendall(frame(Ready(info)))
    Worker(connection, EngineCore(scheduler, runner)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
