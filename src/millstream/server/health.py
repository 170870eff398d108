"""Whether the server lives, and whether it can take a request now: `/health` and `/ready`.

Liveness is for whoever would end the process: it stays 200 while the engine is loaded, restarted or hung, as the server
mends that by itself and keeps open streams meanwhile. Readiness is for whoever sends requests. Both bodies tell why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.engine.protocol import EngineStats, PauseReason
from millstream.ir.errors import ENGINE_LOST, ApiError
from millstream.server.lifecycle import Lifecycle
from millstream.server.settings import Settings
from millstream.surfaces.openai_common import to_json

EngineHealth = Callable[[], Awaitable[EngineStats]]
"""See `millstream.engine.protocol.TokenEngine.stats`."""

Status = Literal["ready", "loading", "draining", "restarting", "silent", "stuck", "lost"]
"""What the server is doing: it can answer; the model is being loaded; it stops; the engine process is being started
again; the engine does not answer questions; it answers them, but its step has no end; there will be no engine."""


class Report(msgspec.Struct, frozen=True):
    """How things stand. ``stats`` None: the engine did not answer; while it is restarted they are the last ones."""

    status: Status
    reason: str | None = None
    stats: EngineStats | None = None

    @property
    def live(self) -> bool:
        return self.status != "lost"

    @property
    def ready(self) -> bool:
        return self.status == "ready"


class Health:
    """Asks the engine, and knows what its answers mean."""

    def __init__(self, engine: EngineHealth, lifecycle: Lifecycle, settings: Settings) -> None:
        self._engine = engine
        self._lifecycle = lifecycle
        self._settings = settings

    async def report(self) -> Report:
        """One round trip at most."""
        found = await self._asked()
        if self._lifecycle.draining:
            reason = f"The server is shutting down; {self._lifecycle.open_requests} requests are being answered."
            return Report("draining", reason, found.stats)
        return found

    async def _asked(self) -> Report:
        try:
            stats = await asyncio.wait_for(self._engine(), self._settings.health_seconds)
        except ApiError as error:
            return Report("lost" if error.code == ENGINE_LOST else "restarting", error.message)
        except TimeoutError:
            return Report("silent", f"The engine did not answer within {self._settings.health_seconds:g} s.")
        if stats.outage is not None:
            return Report("restarting", stats.outage, stats)
        resting = sum(stats.waits.get(reason, 0) for reason in get_args(PauseReason))
        if stats.running + stats.waiting > resting and stats.idle_seconds > self._settings.stuck_seconds:
            return Report("stuck", f"The engine has work but made no step for {stats.idle_seconds:.0f} s.", stats)
        return Report("ready", None, stats)


class HealthRoutes:
    """The two routes over one `Health`. ``models``: what is served."""

    def __init__(self, health: Health, models: Callable[[], list[str]]) -> None:
        self._health = health
        self._models = models

    def routes(self) -> list[Route]:
        """What to mount."""
        return [Route("/health", self.live, methods=["GET"]), Route("/ready", self.ready, methods=["GET"])]

    async def live(self, request: Request) -> Response:
        """503 only if there will be no engine any more; the body is that of `ready`."""
        report = await self._health.report()
        return answer(report, self._models(), ok=report.live)

    async def ready(self, request: Request) -> Response:
        """200 if a request that comes now is worked on, else 503 with the reason."""
        report = await self._health.report()
        return answer(report, self._models(), ok=report.ready)


def answer(report: Report, models: list[str], *, ok: bool) -> Response:
    """A report as JSON."""
    body: dict[str, Any] = {"status": report.status, "models": models}
    if report.reason is not None:
        body["reason"] = report.reason
    if (stats := report.stats) is not None:
        names = ("running", "waiting", "waits", "kv_blocks_used", "kv_blocks_total", "steps", "restarts")
        body |= {name: getattr(stats, name) for name in names}
    headers = None if ok else {"retry-after": "2"}
    return Response(to_json(body), 200 if ok else 503, headers, media_type="application/json")
