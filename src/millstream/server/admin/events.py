"""`GET /v1/events`: a snapshot of the server once in a while, as server-sent events."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from millstream.ir.errors import invalid
from millstream.server.admin.snapshots import Snapshots
from millstream.server.admin.watching import WatchResponse
from millstream.server.lifecycle import Lifecycle
from millstream.server.replies import json_response
from millstream.server.settings import Settings

PATH = "/v1/events"
INTERVALS = (0.2, 60.0)
"""Seconds between two events, least and most."""


class EventRoutes:
    """The one route."""

    def __init__(self, snapshots: Snapshots, lifecycle: Lifecycle, settings: Settings) -> None:
        self._snapshots = snapshots
        self._lifecycle = lifecycle
        self._settings = settings

    def routes(self) -> list[Route]:
        """What to mount."""
        return [Route(PATH, self.events, methods=["GET"])]

    async def events(self, request: HttpRequest) -> Response | WatchResponse:
        """``interval``: seconds; ``once``: one snapshot as JSON."""
        query = request.query_params
        interval = _interval(query.get("interval", "1"))
        once = query.get("once", "false").lower()
        if once not in ("true", "false", "1", "0"):
            raise invalid("once must be true or false.", param="once")
        if once in ("true", "1"):
            return json_response((await self._snapshots.rated()).body)
        return WatchResponse(self._ticks(interval), self._lifecycle, self._settings.keep_alive_seconds)

    async def _ticks(self, interval: float) -> AsyncGenerator[bytes]:
        """One event now, then one at each multiple of the interval by the loop's clock: so watchers with the same
        interval want theirs at the same time, and share it. A tick that the client was too slow for is left out."""
        time = asyncio.get_running_loop().time
        taken = await self._snapshots.rated(interval / 2)
        while True:
            yield b"event: snapshot\ndata: " + taken.body + b"\n\n"
            now = time()
            await asyncio.sleep((math.floor(now / interval) + 1) * interval - now)
            taken = await self._snapshots.fresh(interval / 2)


def _interval(text: str) -> float:
    low, high = INTERVALS
    try:
        interval = float(text)
    except ValueError:
        interval = math.nan
    if not low <= interval <= high:
        raise invalid(f"interval must be between {low:g} and {high:g} seconds.", param="interval")
    return interval
