"""The real scheduler behind the seam, in this process: it makes a step when a test says so, and at no other time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from millstream.engine.core import EngineCore
from millstream.engine.protocol import EngineInfo, EngineStats, SequenceView, TokenAlternatives, TokenRequest
from millstream.engine.streams import SequenceStream
from millstream.scheduler.places import SchedulerConfig
from millstream.scheduler.scheduler import Chunk, Sampled, Scheduler
from support.scripted_model import info
from support.scripted_runner import ScriptedRunner

BLOCK = 4


class _Runner(ScriptedRunner):
    """Tells log probabilities to those who want them."""

    def execute(self, chunks: list[Chunk]) -> Sampled:
        sampled = super().execute(chunks)
        asked = [chunk.sequence.request.sampling.logprobs is not None for chunk in chunks for _ in range(chunk.rows)]
        return replace(sampled, logprobs=[TokenAlternatives(-1.0) if each else None for each in asked])


class TickedEngine:
    """A `TokenEngine`. As in the engine process, what it is told is carried out before the next step."""

    def __init__(self, **sizes: Any) -> None:
        config = SchedulerConfig(**{"kv_blocks": 2048, "block_size": BLOCK, "step_tokens": 16, **sizes})
        self.core = EngineCore(Scheduler(config), _Runner(BLOCK))
        self.asked = 0
        self._orders: list[Callable[[], None]] = []
        self._streams: dict[str, SequenceStream] = {}

    @property
    def info(self) -> EngineInfo:
        return replace(info(context_length=8192), hidden_size=4)

    async def submit(self, request: TokenRequest) -> SequenceStream:
        self.asked += 1
        stream = SequenceStream(request.id, resume=lambda _: None, leave=self._leave)
        self._streams[request.id] = stream
        self._orders.append(partial(self.core.add, request))
        return stream

    async def stats(self) -> EngineStats:
        return self.core.stats()

    async def close(self) -> None:
        pass

    def tick(self) -> None:
        """Carry out what was said, and make one step."""
        for order in self._orders:
            order()
        self._orders.clear()
        for delta in self.core.step():
            if (stream := self._streams.get(delta.id)) is not None:
                stream.push(delta)
                if delta.finish is not None:
                    del self._streams[delta.id]

    def views(self, *, without: str) -> list[SequenceView]:
        """Where each sequence is, but one."""
        return [view for view in self.core.sequences() if view.id != without]

    def _leave(self, request_id: str) -> None:
        if self._streams.pop(request_id, None) is not None:
            self._orders.append(partial(self.core.abort, request_id))
