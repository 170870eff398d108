"""The operator's side of an app, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from starlette.routing import Route

from millstream.ir.provider import Provider
from millstream.server.admin.events import EventRoutes
from millstream.server.admin.logs import LogRoutes
from millstream.server.admin.registry import Listener, Requests
from millstream.server.admin.requests import RequestRoutes
from millstream.server.admin.snapshots import Snapshots, Sources
from millstream.server.health import Health
from millstream.server.lifecycle import Lifecycle
from millstream.server.metrics import Metrics
from millstream.server.settings import Settings
from millstream.server.telemetry.logs import LogRing
from millstream.server.telemetry.requests import log_ended


class Operator(NamedTuple):
    """What an app is given for its operator. ``logs``: where log lines are kept (None: none are). ``listeners``: who is
    told of each request that has ended, such as a tracer. ``log_prompts``: the log has what requests ask and are
    answered."""

    logs: LogRing | None = None
    listeners: tuple[Listener, ...] = ()
    log_prompts: bool = False


class OperatorSide:
    """``requests``: where each request that generates has to enter."""

    def __init__(
        self,
        operator: Operator,
        sources: Sources,
        provider: Provider,
        health: Health,
        metrics: Metrics,
        lifecycle: Lifecycle,
        settings: Settings,
        *,
        name_of: Callable[[str], str] = str,
    ) -> None:
        """``name_of``: what people call a tenant."""
        self.requests = Requests(metrics, lifecycle, name_of=name_of, log_prompts=operator.log_prompts)
        self.requests.listeners += [log_ended, *operator.listeners]
        snapshots = Snapshots(provider, health, self.requests, sources, settings.health_seconds)
        self._parts = (
            EventRoutes(snapshots, lifecycle, settings),
            RequestRoutes(self.requests, snapshots, provider, lifecycle, settings),
            LogRoutes(operator.logs or LogRing(), lifecycle, settings),
        )

    def routes(self) -> list[Route]:
        """What to mount."""
        return [route for part in self._parts for route in part.routes()]
