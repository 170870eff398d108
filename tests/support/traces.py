"""Golden traces: the real scheduler and journal with a scripted engine, written down step by step.

A scenario says what happens at which tick. A tick is one step of the engine, and takes `TICK` seconds of a clock that
nothing else moves. The trace shows what every step ran, what became of it, and why others waited:

     3  decode a+1 b+4 | prefill c 8-16
        waits d:kv_cache
        b: 2 of 3 drafted tokens are right

``python -m support.traces`` (in ``tests``) writes all traces anew; read the difference before you keep it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from millstream.engine.core import EngineCore
from millstream.engine.deadlines import Deadlines
from millstream.engine.journal import Journal
from millstream.engine.protocol import PauseReason, SamplingParams, TokenDelta, TokenRequest
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Chunk, Sampled, Scheduler
from support.scripted_constraint import Stretches
from support.scripted_runner import Model, ScriptedRunner, expected_output, next_token

FOLDER = Path(__file__).parent.parent / "scheduler" / "traces"
BLOCK = 4
TICK = 1.0


class _Runner(ScriptedRunner):
    """Remembers the chunks of the last step, and which of them decode."""

    last: tuple[tuple[Chunk, bool], ...] = ()

    def execute(self, chunks: list[Chunk]) -> Sampled:
        self.last = tuple((c, c.sequence.decoding and c.start >= c.sequence.prompt_length) for c in chunks)
        return super().execute(chunks)


class Trace:
    """A scenario as it is played: `ask`, `leave` and so on happen before the next `tick`."""

    def __init__(self, *, model: Model = next_token, **config: Any) -> None:
        sizes: dict[str, Any] = {"kv_blocks": 64, "step_tokens": 16, "max_sequences": 8, "step_seconds": 1e9, **config}
        self._config = SchedulerConfig(block_size=BLOCK, prompt_units=sizes["step_tokens"], **sizes)
        self._model = model
        self._journal = Journal()
        self._deadlines = Deadlines()
        self._requests: dict[str, TokenRequest] = {}
        self._seen: dict[str, list[int]] = {}
        self._ended: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._now = 0.0
        self._tick = 0
        self.lines: list[str] = []
        self._boot()

    def _boot(self) -> None:
        self._runner = _Runner(BLOCK, self._model)
        self._core = EngineCore(Scheduler(self._config), self._runner, Stretches(), clock=lambda: self._now)

    def ask(
        self, name: str, prompt: Iterable[int], max_tokens: int = 4, *, timeout: float | None = None, **how: Any
    ) -> None:
        """A request comes."""
        request = TokenRequest(name, list(prompt), SamplingParams(), max_tokens, **how)
        extras = [f"{key}={value}" for key, value in how.items()] + ([f"timeout={timeout:g}"] if timeout else [])
        self._say(f"+ {name}: {len(request.prompt)} tokens, at most {max_tokens}" + "".join(f", {e}" for e in extras))
        self._requests[name] = request
        self._seen[name] = []
        self._journal.add(request)
        if timeout is not None:
            self._deadlines.add(name, self._now + timeout)

    def leave(self, name: str) -> None:
        """A client goes away."""
        self._say(f"- {name} leaves")
        self._drop(name, "left")

    def stall(self, name: str) -> None:
        """A client stops reading."""
        self._say(f"= {name} stops reading")
        self._pause(name, "paused_reader")

    def read_on(self, name: str) -> None:
        """It reads again."""
        self._say(f"= {name} reads again")
        self._resume(name, "paused_reader")

    def hold(self, name: str) -> None:
        """An operator has a request rest."""
        self._say(f"= {name} is held")
        self._pause(name, "held")

    def release(self, name: str) -> None:
        """The operator lets it go on."""
        self._say(f"= {name} is released")
        self._resume(name, "held")

    def reprioritise(self, name: str, priority: int) -> None:
        """The operator puts a request into another class."""
        self._say(f"= {name} has priority {priority} from now on")
        if self._journal.reprioritise(name, priority):
            self._core.reprioritise(name, priority)

    def _pause(self, name: str, reason: PauseReason) -> None:
        told = self._journal.pause(name, reason)
        if told == "pause":
            self._core.pause(name, reason)
        elif told == "abort":
            self._core.abort(name)

    def _resume(self, name: str, reason: PauseReason) -> None:
        if self._journal.resume(name, reason):
            self._core.resume(name, reason)

    def crash(self) -> None:
        """The engine process dies and is replaced."""
        self._say("! the engine ends and is started again")
        for name in self._journal.crashed():
            self._ended[name] = "given up"
            self._say(f"  {name} is given up")
        self._boot()

    def wait(self, seconds: float) -> None:
        """Time passes without a step."""
        self._now += seconds

    def tick(self, count: int = 1, *, lost: bool = False) -> None:
        """Run steps; ``lost``: the process ends before the result of the last one arrives."""
        for _ in range(count):
            self._step(lost=lost)

    def finish(self, limit: int = 200) -> None:
        """Run until nothing is left to do, and hold every answer against that of the request alone."""
        while self._core.has_work or self._journal.kept_back:
            assert self._tick < limit, "the scenario has no end"
            self._step(lost=False)
        for name, request in self._requests.items():
            output, finish = expected_output(request, self._model)
            end = self._ended[name]
            assert self._seen[name] == output[: len(self._seen[name])], name
            assert end not in ("stop", "length") or (self._seen[name], end) == (output, finish), name
        assert self._core.stats().kv_blocks_used == 0

    def _step(self, *, lost: bool) -> None:
        for name in self._deadlines.due(self._now):
            self._say(f"- time is up for {name}")
            self._drop(name, "timeout")
        for request in self._journal.due():
            self._core.add(request)
            self._journal.accepted(request.id)
        self._runner.last = ()
        deltas = self._core.step(lambda batch, tokens: self._journal.batch(batch))
        self._tick += 1
        self._now += TICK
        self.lines.append(f"{self._tick:4}  {self._work() or 'nothing to run'}")
        if waits := self._waits():
            self._say(f"waits {waits}")
        for delta in () if lost else deltas:
            self._told(delta)

    def _work(self) -> str:
        decodes, prefills = [], []
        for chunk, decodes_now in self._runner.last:
            sequence = chunk.sequence
            end = chunk.start + chunk.count
            if decodes_now:
                decodes.append(f"{sequence.id}+{chunk.count}")
            else:
                cached = (
                    f" ({sequence.cached_tokens} cached)"
                    if chunk.start and chunk.start == sequence.cached_tokens
                    else ""
                )
                prefills.append(f"{sequence.id} {chunk.start}-{end}{cached}")
        parts = [f"{kind} {' '.join(work)}" for kind, work in (("decode", decodes), ("prefill", prefills)) if work]
        return " | ".join(parts)

    def _waits(self) -> str:
        return " ".join(f"{view.id}:{view.wait_reason}" for view in self._core.sequences() if view.wait_reason)

    def _told(self, delta: TokenDelta) -> None:
        shown = self._journal.record(delta)
        if shown is None:
            return
        self._seen[delta.id] += shown.tokens
        if shown.drafted:
            self._say(f"{delta.id}: {shown.accepted} of {shown.drafted} drafted tokens are right")
        if (forced := len(shown.tokens) - 1 - shown.accepted) > 0:
            self._say(f"{delta.id}: {forced} tokens are forced behind the sampled one")
        if shown.finish:
            self._say(f"{delta.id} ends: {shown.finish}")
            self._ended[delta.id] = shown.finish
            self._deadlines.remove(delta.id)

    def _drop(self, name: str, end: str) -> None:
        self._ended[name] = end
        self._deadlines.remove(name)
        if self._journal.remove(name):
            self._core.abort(name)

    def _say(self, text: str) -> None:
        self.lines.append(f"      {text}")


Scenario = Callable[[], Trace]


def text_of(scenario: Scenario) -> str:
    """The trace of a scenario: its docstring, then its steps."""
    trace = scenario()
    trace.finish()
    return "\n".join([" ".join((scenario.__doc__ or "").split()), "", *trace.lines]) + "\n"


def main() -> None:
    """Write every trace."""
    from scheduler.scenarios import SCENARIOS

    FOLDER.mkdir(exist_ok=True)
    for name, scenario in SCENARIOS.items():
        (FOLDER / f"{name}.txt").write_text(text_of(scenario), encoding="utf-8")
    for path in FOLDER.glob("*.txt"):
        if path.stem not in SCENARIOS:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
