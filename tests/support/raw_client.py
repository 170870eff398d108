"""An ASGI client that may leave, or stop reading, at any moment."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class RawClient:
    """Sends one request at once. ``sent``: the messages that the app has sent; it waits while ``reads`` is not set."""

    def __init__(self, app: Any, path: str, wire: dict[str, Any]) -> None:
        self.sent: list[dict[str, Any]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._request: dict[str, Any] | None = {"type": "http.request", "body": json.dumps(wire).encode()}
        self._gone = asyncio.Event()
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
        self.task = asyncio.ensure_future(app({**scope, "raw_path": b""}, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        request, self._request = self._request, None
        if request is not None:
            return request
        await self._gone.wait()  # as in uvicorn, every later call tells it again
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self.reads.wait()
        self.sent.append(message)

    def leave(self) -> None:
        self._gone.set()
