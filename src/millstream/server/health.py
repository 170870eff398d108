"""Whether the server lives, and whether it can take a request now: `/health` and `/ready`.

Liveness is for whoever would end the process: it stays 200 while the engine is loaded, restarted or hung, as the server
mends that by itself and keeps open streams meanwhile. Readiness is for whoever sends requests: of several models the
default one counts. Both bodies tell why, and how every engine is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.engine.protocol import EngineStats, PauseReason
from millstream.ir.errors import ENGINE_LOST, ApiError
from millstream.ir.provider import ModelCard
from millstream.keys.key import Key
from millstream.server.engines import Engines, ServedEngine
from millstream.server.lifecycle import Lifecycle
from millstream.server.settings import Settings
from millstream.server.tenants import is_stranger, key_of, visible_to
from millstream.surfaces.openai_common import to_json

Status = Literal["ready", "loading", "draining", "restarting", "silent", "stuck", "lost", "unloading", "no_model"]
"""What the server is doing: it can answer; the model is being loaded; it stops; the engine process is being started
again; the engine does not answer questions; it answers them, but its step has no end; there will be no engine; the
model answers what is open and ends; no model is loaded."""

_COUNTS = ("running", "waiting", "kv_blocks_used", "kv_blocks_total", "steps", "restarts")


class Report(msgspec.Struct, frozen=True):
    """How things stand with an engine, or with the server: then with its default model's. ``stats`` None: the
    engine did not answer; while it is restarted they are the last ones. ``engines``: of a server, all of them by
    their models, the default first."""

    status: Status
    reason: str | None = None
    stats: EngineStats | None = None
    engines: Mapping[str, Report] = {}

    @property
    def live(self) -> bool:
        return self.status != "lost" or any(engine.live for engine in self.engines.values())

    @property
    def ready(self) -> bool:
        return self.status == "ready"


_NO_MODEL = Report("no_model", "No model is loaded.")

_FOR_ANYBODY: Mapping[Status, str] = {
    "loading": "The model is being loaded.",
    "draining": "The server is shutting down.",
    "restarting": "The engine is being restarted.",
    "silent": "The engine does not answer.",
    "stuck": "The engine has work and makes no step.",
    "lost": "The engine has failed and will not be restarted.",
    "unloading": "The model is being unloaded.",
    "no_model": "No model is loaded.",
}
"""Reasons for those who may not know the true ones, which tell of models, of files and of how much is going on."""


class Health:
    """Asks the engines, and knows what their answers mean."""

    def __init__(self, engines: Engines, lifecycle: Lifecycle, settings: Settings) -> None:
        self._engines = engines
        self._lifecycle = lifecycle
        self._settings = settings

    async def report(self) -> Report:
        """One round trip at most, to all engines at once."""
        engines = self._engines.engines()
        found = await asyncio.gather(*map(self._asked, engines))
        reports = {engine.model: report for engine, report in zip(engines, found, strict=True)}
        serving = (reports[engine.model] for engine in engines if not engine.leaving)
        first = next(serving, _NO_MODEL)
        if self._lifecycle.draining:
            reason = f"The server is shutting down; open requests: {self._lifecycle.open_requests}."
            return Report("draining", reason, first.stats, reports)
        return Report(first.status, first.reason, first.stats, reports)

    async def _asked(self, engine: ServedEngine) -> Report:
        try:
            stats = await asyncio.wait_for(engine.stats(), self._settings.health_seconds)
        except ApiError as error:
            return Report("lost" if error.code == ENGINE_LOST else "restarting", error.message)
        except TimeoutError:
            return Report("silent", f"The engine did not answer within {self._settings.health_seconds:g} s.")
        if stats.outage is not None:
            return Report("restarting", stats.outage, stats)
        resting = sum(stats.waits.get(reason, 0) for reason in get_args(PauseReason))
        if stats.running + stats.waiting > resting and stats.idle_seconds > self._settings.stuck_seconds:
            return Report("stuck", f"The engine has work but made no step for {stats.idle_seconds:.0f} s.", stats)
        if engine.leaving:
            return Report("unloading", "The model is being unloaded and takes no new requests.", stats)
        return Report("ready", None, stats)


class HealthRoutes:
    """The two routes over one `Health`. ``models``: what is served. Who needs a key and has none is told the
    status and a reason without particulars."""

    def __init__(self, health: Health, models: Callable[[], list[ModelCard]]) -> None:
        self._health = health
        self._models = models

    def routes(self) -> list[Route]:
        """What to mount."""
        return [Route("/health", self.live, methods=["GET"]), Route("/ready", self.ready, methods=["GET"])]

    async def live(self, request: Request) -> Response:
        """503 only if there will be no engine any more; the body is that of `ready`."""
        report = await self._health.report()
        return self._answer(request, report, ok=report.live)

    async def ready(self, request: Request) -> Response:
        """200 if a request that comes now is worked on, else 503 with the reason."""
        report = await self._health.report()
        return self._answer(request, report, ok=report.ready)

    def _answer(self, request: Request, report: Report, *, ok: bool) -> Response:
        if is_stranger(request.scope):
            return answer(_outline(report), None, ok=ok)
        key = key_of(request.scope)
        models = [card.id for card in visible_to(key, self._models())]
        return answer(report if key is None else _seen_by(key, report), models, ok=ok)


def _seen_by(key: Key, report: Report) -> Report:
    """What a key may know of a report: nothing of models that it may not use."""
    seen = {name: engine for name, engine in report.engines.items() if key.may_use(name)}
    if len(seen) == len(report.engines):
        return report
    return msgspec.structs.replace(_outline(report), engines=seen)


def _outline(report: Report) -> Report:
    return Report(report.status, _FOR_ANYBODY.get(report.status))


def answer(report: Report, models: list[str] | None, *, ok: bool) -> Response:
    """A report as JSON: the counts are those of all engines together, ``engines`` has them one by one.
    ``models`` None: what is served is not told."""
    told = [engine.stats for engine in report.engines.values() if engine.stats is not None]
    body = {**_state(report), **({} if models is None else {"models": models}), **_counts(told)}
    if report.engines:
        body["engines"] = [
            {"model": name, **_state(engine), **_counts([engine.stats] if engine.stats is not None else [])}
            for name, engine in report.engines.items()
        ]
    headers = None if ok else {"retry-after": "2"}
    return Response(to_json(body), 200 if ok else 503, headers, media_type="application/json")


def _state(report: Report) -> dict[str, Any]:
    return {"status": report.status} if report.reason is None else {"status": report.status, "reason": report.reason}


def _counts(told: list[EngineStats]) -> dict[str, Any]:
    """Sums over what engines told; nothing if none did."""
    if not told:
        return {}
    waits: Counter[str] = Counter()
    for stats in told:
        waits.update(stats.waits)
    return {name: sum(getattr(stats, name) for stats in told) for name in _COUNTS} | {"waits": dict(waits)}
