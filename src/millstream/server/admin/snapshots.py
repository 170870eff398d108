"""What the server does at a moment, as `Snapshot`: computed once for all who want to know it at that time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from millstream.admin.views import EngineView, KeyUsage, ModelView, Snapshot
from millstream.engine.protocol import EngineStats, SequenceView
from millstream.ir.errors import ApiError
from millstream.ir.provider import Provider
from millstream.server.admin.control import RequestControl
from millstream.server.admin.entry import clock
from millstream.server.admin.history import History
from millstream.server.admin.registry import Requests
from millstream.server.engines import ServedEngine
from millstream.server.health import Health, Report
from millstream.surfaces.openai_common import to_json

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_FIRST_RATE_SECONDS = 0.2
"""Where there is nothing to compare with, a rate is that of this time."""


class Sources(NamedTuple):
    """Who knows what the server itself does not. ``engines``: all engines; ``models``: all that are served or could be;
    ``keys``: what each has used."""

    engines: Callable[[], Sequence[ServedEngine]]
    models: Callable[[], list[ModelView]] | None = None
    keys: Callable[[], list[KeyUsage]] = list


class Taken(NamedTuple):
    """A snapshot, as JSON too. ``at``: by `clock`."""

    at: float
    snapshot: Snapshot
    body: bytes


class Snapshots:
    """Makes them when somebody asks, and keeps the last."""

    def __init__(
        self, provider: Provider, health: Health, requests: Requests, sources: Sources, seconds: float
    ) -> None:
        """``seconds``: how long the engines may take to tell of their sequences."""
        self._provider = provider
        self._health = health
        self._requests = requests
        self._sources = sources
        self._seconds = seconds
        self._began = clock()
        self._taken: Taken | None = None
        self._making: asyncio.Task[Taken] | None = None
        self._histories: dict[str, History] = {}

    async def fresh(self, age: float) -> Taken:
        """One that is at most ``age`` seconds old. Those who ask while one is being made get that one."""
        if self._taken is not None and clock() - self._taken.at < age:
            return self._taken
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(self._made)
        # Whoever leaves must not take it from the others.
        return await asyncio.shield(self._making)

    async def rated(self, age: float = 0.0) -> Taken:
        """The same, with rates that mean something although nobody may have asked before."""
        if all(history.stale(clock()) for history in self._histories.values()):
            await self.fresh(0.0)
            await asyncio.sleep(_FIRST_RATE_SECONDS)
        return await self.fresh(age)

    def _made(self, making: asyncio.Task[Taken]) -> None:
        self._making = None
        if not making.cancelled() and making.exception() is None:
            self._taken = making.result()

    async def _make(self) -> Taken:
        report, sequences = await asyncio.gather(self._health.report(), self._sequences())
        now = clock()
        self._look(report, now)
        for entry in self._requests:
            history = self._histories.get(entry.facts.model)
            restarted = history is not None and history.restarted()
            entry.compare(sequences.get(entry.facts.handle, ()), restarted=restarted)
        snapshot = self._snapshot(report, now)
        return Taken(now, snapshot, to_json(snapshot))

    def _look(self, report: Report, now: float) -> None:
        """Take what the engines answered; those that are gone are forgotten."""
        histories = {model: self._histories.get(model) or History() for model in report.engines}
        for model, engine in report.engines.items():
            histories[model].look(engine.stats, now)
        self._histories = histories

    def _snapshot(self, report: Report, now: float) -> Snapshot:
        from millstream import __version__

        metrics = self._requests.metrics
        models = self._sources.models
        histories = self._histories.values()
        return Snapshot(
            time=time.time(),
            version=__version__,
            status=report.status,
            reason=report.reason,
            uptime_seconds=now - self._began,
            open_requests=len(self._requests),
            decode_tokens_per_second=sum(history.decode_rate() for history in histories),
            prompt_tokens_per_second=sum(history.prompt_rate() for history in histories),
            first_token=metrics.first_token.percentiles(now),
            inter_token=metrics.inter_token.percentiles(now),
            engines=self._engines(report),
            requests=[entry.view() for entry in self._requests],
            models=models() if models is not None else self._served(),
            keys=self._sources.keys(),
        )

    def _engines(self, report: Report) -> list[EngineView]:
        known = {engine.model: engine for engine in self._sources.engines()}
        return [self._engine(model, found, known.get(model)) for model, found in report.engines.items()]

    def _engine(self, model: str, report: Report, engine: ServedEngine | None) -> EngineView:
        stats = report.stats or EngineStats()
        info, pid = (engine.info, engine.pid) if engine is not None else (None, 0)
        return EngineView(
            model=model,
            status=report.status,
            reason=report.reason,
            isa=info.isa if info is not None else "",
            threads=info.threads if info is not None else 0,
            running=stats.running,
            waiting=stats.waiting,
            waits=stats.waits,
            kv_blocks_used=stats.kv_blocks_used,
            kv_blocks_total=stats.kv_blocks_total,
            prefix_hit_ratio=self._histories[model].hit_ratio(),
            preemptions=stats.preemptions,
            restarts=stats.restarts,
            resumed=stats.resumed,
            pid=pid,
            resident_bytes=resident_bytes(pid),
        )

    def _served(self) -> list[ModelView]:
        """The models of the provider: nobody knows of others."""
        known = {engine.model: engine.info for engine in self._sources.engines()}
        open_by_model: dict[str, int] = {}
        for entry in self._requests:
            open_by_model[entry.facts.model] = open_by_model.get(entry.facts.model, 0) + 1
        return [
            ModelView(
                name=card.id,
                state="loaded",
                context_length=card.context_length,
                kv_tokens=info.kv_tokens if (info := known.get(card.id)) is not None else 0,
                kv_type=info.kv_type if info is not None else "",
                activations=info.activations if info is not None else "",
                open_requests=open_by_model.get(card.id, 0),
                default=index == 0,
            )
            for index, card in enumerate(self._provider.models())
        ]

    async def _sequences(self) -> Mapping[str, Sequence[SequenceView]]:
        if not isinstance(self._provider, RequestControl):
            return {}
        try:
            return await asyncio.wait_for(self._provider.sequences(), self._seconds)
        except (ApiError, TimeoutError):
            return {}  # the report says what is wrong with the engine


def resident_bytes(pid: int) -> int:
    """Memory of a process; 0 where that is not known."""
    if not pid:
        return 0
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
