"""uvicorn around the app: a socket bound first, signals that drain, bounds on slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn
from starlette.applications import Starlette

from millstream.server.binding import bind
from millstream.server.head import MAX_HEADER_BYTES
from millstream.server.lifecycle import Lifecycle
from millstream.server.process import run, settle
from millstream.server.protocol import protocol_class
from millstream.server.settings import Settings


class HttpServer:
    """Serves an app of `create_app` on a bound socket until it is stopped."""

    def __init__(
        self,
        app: Starlette,
        sock: socket.socket,
        settings: Settings | None = None,
        *,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self._lifecycle: Lifecycle = app.state.lifecycle
        self._sock = sock
        self._draining: asyncio.Task[None] | None = None
        self._server = _Server(_config(app, self._settings), on_ready)

    async def run(self) -> None:
        """Serve. SIGINT and SIGTERM call `stop` if this is the main thread. Returns when all is closed."""
        with self._signals():
            await self._server.serve(sockets=[self._sock])

    def stop(self) -> None:
        """Drain: refuse new work, let open answers finish, then end. Called again: end now."""
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())
        else:
            self._lifecycle.cancel_open()
            self._lifecycle.cancel_watching()
            self._server.should_exit = self._server.force_exit = True

    async def _drain(self) -> None:
        self._lifecycle.drain()
        if not await self._lifecycle.wait_idle(self._settings.drain_seconds):
            self._lifecycle.cancel_open()
            await self._lifecycle.wait_idle(2)
        self._lifecycle.cancel_watching()
        self._server.should_exit = True

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        taken = []
        for number in (signal.SIGINT, signal.SIGTERM):
            # Not the main thread, or no signals on this loop: whoever started the server stops it.
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, self.stop)
                taken.append(number)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)


def run_server(app: Starlette, host: str, port: int, settings: Settings | None = None) -> None:
    """Bind and serve until a signal. Raises `OSError` if the address cannot be had."""
    run(HttpServer(app, bind(host, port), settings, on_ready=settle).run())


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process by the signal instead of with 0."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_ready is not None:
            self._on_ready()


def _config(app: Starlette, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_class(settings),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=settings.idle_seconds,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
