"""An engine process without a model: the real worker loop over the scripted runner.

``EngineConfig.model_name`` chooses how it behaves, the words after the first being arguments:

| name | behaviour |
|---|---|
| plain, slow | obedient; slow takes 20 ms a step |
| crawls | a step takes a second in which it gets on |
| broken, dies | sends why it cannot start; exits at once |
| dies-at K... | the first process dies in its step K, the second in the next K, ...; later ones are obedient |
| poison K | dies whenever a request with an id that begins with "poison" runs and has K tokens of output or more |
| allergic | dies while it takes a request whose id begins with "poison" |
| dies-taking K | the first process dies while it takes its request K, as a grammar that is compiled may have it do |
| hangs-at K | the first process makes no more steps after K of them |
| starts OUTCOMES | one letter for each process in order: r ready, f fails to start, d dies; the last one repeats |

What depends on earlier processes is counted in the file ``EngineConfig.model_path``. Whatever its behaviour, a process
makes no more steps than a `support.step_gate.StepGate` beside that file lets it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from millstream.engine.config import EngineConfig
from millstream.engine.core import EngineCore
from millstream.engine.messages import Ready, StartFailed, frame
from millstream.engine.protocol import EngineInfo, TokenRequest
from millstream.engine.worker import Worker
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Chunk, Sampled, Scheduler
from support.scripted_runner import VOCABULARY, ScriptedRunner
from support.step_gate import wait_for_gate

BLOCK = 4
BLOCKS = 64


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Behaviour(ScriptedRunner):
    """``process``: how many processes there were before this one; ``state``: the file that counts them."""

    def __init__(self, words: list[str], process: int, state: Path) -> None:
        super().__init__(BLOCK)
        self.kind, self.arguments = words[0], words[1:]
        self.process = process
        self.state = state

    def execute(self, chunks: list[Chunk]) -> Sampled:
        step = len(self.steps) + 1
        wait_for_gate(self.state, step)
        if self.kind == "slow":
            time.sleep(0.02)
        elif self.kind == "crawls":
            for _ in range(100):
                time.sleep(0.01)
                self.progress += 1
        elif self.kind == "dies-at" and self.process < len(self.arguments):
            if step == int(self.arguments[self.process]):
                die()
        elif self.kind == "hangs-at" and self.process == 0 and step > int(self.arguments[0]):
            time.sleep(3600)
        elif self.kind == "poison":
            for sequence in (chunk.sequence for chunk in chunks):
                if sequence.id.startswith("poison") and sequence.output_length >= int(self.arguments[0]):
                    die()
        return super().execute(chunks)


class AllergicCore(EngineCore):
    def add(self, request: TokenRequest) -> None:
        if request.id.startswith("poison"):
            die()
        super().add(request)


class FragileCore(EngineCore):
    """Dies with request number ``fatal``."""

    fatal = 0

    def add(self, request: TokenRequest) -> None:
        self.fatal -= 1
        if not self.fatal:
            die()
        super().add(request)


def earlier_processes(path: Path) -> int:
    """How often this was called with the same file before."""
    if str(path) == "none":
        return 0
    before = int(path.read_text()) if path.exists() else 0
    path.write_text(str(before + 1))
    return before


def main() -> int:
    connection = socket.socket(fileno=int(sys.argv[1]))
    config = msgspec.json.decode(sys.argv[2], type=EngineConfig)
    words = config.model_name.split()
    state = Path(config.model_path)
    process = earlier_processes(state)
    outcome = words[1][min(process, len(words[1]) - 1)] if words[0] == "starts" else "r"
    if words[0] == "dies" or outcome == "d":
        return 7
    if words[0] == "broken" or outcome == "f":
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
    kinds = {"allergic": AllergicCore, "dies-taking": FragileCore}
    core = kinds.get(words[0], EngineCore)(scheduler, Behaviour(words, process, state))
    if isinstance(core, FragileCore) and process == 0:
        core.fatal = int(words[1])
    connection.sendall(frame(Ready(info)))
    Worker(connection, core).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
