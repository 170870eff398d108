"""A real HTTP server on a free port, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from millstream.engine.protocol import EngineInfo, EngineStats
from millstream.server.admin.side import Operator
from millstream.server.app import create_app
from millstream.server.binding import bind
from millstream.server.engines import EngineHealth, Engines
from millstream.server.run import HttpServer
from millstream.server.settings import Settings
from support.provider import ScriptedEngine, ScriptedProvider


class KnownEngine:
    """The engine behind a server, in this process, with facts of its own."""

    pid = os.getpid()
    leaving = False

    def __init__(self, engine: ScriptedEngine, info: EngineInfo) -> None:
        self._engine = engine
        self.info = info

    def engines(self) -> list[KnownEngine]:
        return [self]

    @property
    def model(self) -> str:
        return self.info.model

    async def stats(self) -> EngineStats:
        return await self._engine.stats()


class Live:
    """A running server and what is behind it."""

    def __init__(self, provider: Any, settings: Settings, operator: Operator, info: EngineInfo | None) -> None:
        self.provider = provider
        self.engine = ScriptedEngine()
        self._ready = threading.Event()
        self._sock = bind("127.0.0.1", 0)
        self.port: int = self._sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.app = create_app(provider, self._engines(info), settings, operator=operator)
        self._server = HttpServer(self.app, self._sock, settings, on_ready=self._started)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.run()), daemon=True)

    def _engines(self, info: EngineInfo | None) -> Engines | EngineHealth:
        return self.engine.stats if info is None else KnownEngine(self.engine, info)

    def _started(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._ready.set()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(20)

    def stop(self) -> None:
        """What a signal does."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self._server.stop)

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()

    def client(self, **options: Any) -> httpx.Client:
        # No TLS here, and loading its certificates takes longer than most tests.
        return httpx.Client(base_url=self.url, timeout=20, trust_env=False, verify=False, **options)

    def raw(self, data: bytes) -> socket.socket:
        """A connection that has sent ``data``."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        sock.sendall(data)
        return sock


@contextmanager
def serving(
    provider: Any = None, *, operator: Operator | None = None, info: EngineInfo | None = None, **settings: Any
) -> Iterator[Live]:
    """A server that is stopped at the end. ``info``: facts of its engine; else nothing is known of them."""
    options = Settings(**{"drain_seconds": 0.2, **settings})
    live = Live(provider or ScriptedProvider(), options, operator or Operator(), info)
    live.start()
    try:
        yield live
    finally:
        if live._thread.is_alive():
            live.stop()
            live.join()


def read_all(sock: socket.socket) -> bytes:
    """What comes until the server closes."""
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)
