"""`GET /v1/admin/logs`: the last log lines, and those that follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.requests import Request as HttpRequest
from starlette.routing import Route

from millstream.admin.views import LogLine
from millstream.ir.errors import invalid
from millstream.server.admin.watching import WatchResponse
from millstream.server.lifecycle import Lifecycle
from millstream.server.settings import Settings
from millstream.server.telemetry.logs import KEPT_LINES, LEVEL_NUMBERS, LogRing
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.sse import comment

PATH = "/v1/admin/logs"
_DEFAULT_LINES = 200
_LOOK_SECONDS = 0.2


class LogRoutes:
    """The one route."""

    def __init__(self, ring: LogRing, lifecycle: Lifecycle, settings: Settings) -> None:
        self._ring = ring
        self._lifecycle = lifecycle
        self._settings = settings

    def routes(self) -> list[Route]:
        """What to mount."""
        return [Route(PATH, self.logs, methods=["GET"])]

    async def logs(self, request: HttpRequest) -> WatchResponse:
        """``level``: lines of this and higher levels; ``lines``: at most so many of those that are there already."""
        level = request.query_params.get("level", "debug").lower()
        if level not in LEVEL_NUMBERS:
            raise invalid(f"level must be one of {', '.join(LEVEL_NUMBERS)}.", param="level")
        text = request.query_params.get("lines", str(_DEFAULT_LINES))
        if not text.isascii() or not text.isdigit() or len(text) > 6 or int(text) > KEPT_LINES:
            raise invalid(f"lines must be a whole number from 0 to {KEPT_LINES}.", param="lines")
        events = self._events(LEVEL_NUMBERS[level], int(text))
        return WatchResponse(events, self._lifecycle, self._settings.keep_alive_seconds)

    async def _events(self, least: int, count: int) -> AsyncGenerator[bytes]:
        lines, seen = self._lines(0, least)
        lines = lines[len(lines) - min(count, len(lines)) :]
        yield comment("the last lines, then those that follow")
        while True:
            if lines:
                yield b"".join(b"event: log\ndata: " + to_json(line) + b"\n\n" for line in lines)
            # Any thread may log, and a line costs it no more than its place in the ring: so the ring is looked at.
            while self._ring.written == seen:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
            lines, seen = self._lines(seen, least)

    def _lines(self, since: int, least: int) -> tuple[list[LogLine], int]:
        lines, written = self._ring.since(since)
        return [line for line in lines if LEVEL_NUMBERS[line.level] >= least], written
