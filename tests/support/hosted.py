"""A model host over scripted engines: every model answers with its own name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from millstream.engine.protocol import EngineInfo, EngineStats, TokenRequest
from millstream.engine.scripted import Pause, ScriptedEngine, script
from millstream.hosting.host import ModelHost
from millstream.hosting.opening import ModelLoadError, ModelSource, OpenModel
from millstream.ir.errors import engine_lost
from millstream.ir.request import ChatRequest, Message
from support.scripted_model import VOCAB_SIZE, TinyTokenizer, provider
from support.waiting import until

GIGABYTE = 1 << 30


class HostedScript(ScriptedEngine):
    """As `EngineProcess` to a host. ``gate``: answers stop before their last token until it is set."""

    def __init__(self, name: str, gate: asyncio.Event) -> None:
        super().__init__(self._answer, info=info(name))
        self.name = name
        self.gate = gate
        self.pid = 0
        self.closed: str | None = None
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def _answer(self, request: TokenRequest) -> Iterable[Any]:
        steps = script(request, TinyTokenizer().encode(self.name))
        yield from steps[:-1]
        while not self.gate.is_set():
            yield Pause(0.001)
        yield steps[-1]

    async def stats(self) -> EngineStats:
        if self.lost.done():
            raise engine_lost(self.lost.result())
        return EngineStats(running=len(self.name), kv_blocks_total=10, kv_blocks_used=1, steps=2, waits={"kv_cache": 1})

    async def close(self, reason: str = "stopped") -> None:
        self.closed = reason
        await super().close()


class ScriptedOpener:
    """Opens everything whose name does not begin with ``bad``. ``loading``: cleared, loads wait."""

    def __init__(self) -> None:
        self.loading = asyncio.Event()
        self.loading.set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.engines: dict[str, HostedScript] = {}
        self.opened: list[tuple[str, int]] = []
        self.at_once = self.most_at_once = 0

    def check(self, source: ModelSource, free_bytes: int) -> None:
        if source.name.startswith("large"):
            raise ModelLoadError(f"not enough memory: {free_bytes} are free")

    async def open(self, source: ModelSource, free_bytes: int) -> OpenModel:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            await self.loading.wait()
        finally:
            self.at_once -= 1
        if source.name.startswith("bad"):
            raise ModelLoadError("the file is bad")
        if source.name.startswith("broken"):
            raise RuntimeError("a fault of ours")
        self.opened.append((source.name, free_bytes))
        engine = self.engines[source.name] = HostedScript(source.name, self.gate)
        return OpenModel(engine, provider(engine, name=source.name))


def info(name: str) -> EngineInfo:
    return EngineInfo(
        model=name,
        context_length=2048,
        vocab_size=VOCAB_SIZE,
        kv_tokens=4096,
        block_size=32,
        isa="none",
        threads=1,
    )


def source(name: str) -> ModelSource:
    return ModelSource(name, Path(f"{name}.gguf"))


def ask(model: str) -> ChatRequest:
    return ChatRequest(model=model, messages=(Message("user", "hi"),))


async def host_of(*names: str, opener: ScriptedOpener | None = None, **how: Any) -> tuple[ModelHost, ScriptedOpener]:
    """A host that serves these models."""
    opener = opener or ScriptedOpener()
    host = ModelHost(opener, **{"free_memory": lambda: GIGABYTE, **how})
    for name in names:
        await host.open(source(name))
    return host, opener


async def settled(host: ModelHost) -> None:
    """Until nothing is being loaded or unloaded."""
    await until(
        lambda: not any(host.is_loading(name) or host.is_unloading(name) for name in host.names()),
        "the host does not come to rest",
        pause=0.001,
    )


async def turns() -> None:
    """Let everybody in this event loop do what follows from what was done: by turns, not by time."""
    for _ in range(100):
        await asyncio.sleep(0)
