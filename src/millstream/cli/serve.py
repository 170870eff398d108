"""`serve`: a model behind HTTP, from the command line to the last drained request."""

from __future__ import annotations

import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from millstream.cli.compose import LocalSession, open_local, open_server
from millstream.cli.errors import CliError
from millstream.cli.fetching import find_or_fetch
from millstream.cli.operating import operator_of
from millstream.cli.options import EngineOptions, Formats, ServerOptions, TelemetryOptions
from millstream.cli.terminal import styled
from millstream.engine.protocol import Pooling
from millstream.server.loading import LoadingServer
from millstream.server.process import run, settle
from millstream.server.run import bind
from millstream.server.telemetry.logs import LogRing, set_up_logging


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``model_name``: what clients call the model. ``allow_origins``: web pages of which origins may call.
    ``allow_hosts``: names under which a server on a loopback address may be called.
    ``pooling``: how embeddings are made."""

    host: str
    port: int
    model_name: str | None
    telemetry: TelemetryOptions
    fetch: bool
    allow_origins: tuple[str, ...]
    allow_hosts: tuple[str, ...]
    formats: Formats
    pooling: Pooling | None
    server: ServerOptions
    engine: EngineOptions


def serve_model(ref: str | None, options: ServeOptions) -> None:
    """Serve until Ctrl-C or SIGTERM, then finish the open requests.

    The address is taken before the model is loaded, so that a taken port is known at once.

    Raises:
        CliError: no such model, a file that cannot be served, an address that cannot be had, or an engine that died and
            cannot be started again.
    """
    told = options.telemetry
    logs = set_up_logging(told.log_level, told.log_format, sys.stderr, prompts=told.log_prompts)
    path = find_or_fetch(ref, fetch=options.fetch)
    try:
        sock = bind(options.host, options.port)
    except (OSError, UnicodeError) as error:
        raise CliError(getattr(error, "strerror", None) or f"Cannot listen on {options.host}: {error}") from None
    with sock:
        run(_serve(path, sock, options, logs))


async def _serve(path: Path, sock: socket.socket, options: ServeOptions, logs: LogRing) -> None:
    opening = open_local(
        path, options.engine, name=options.model_name, formats=options.formats, pooling=options.pooling
    )
    async with AsyncExitStack() as stack:
        async with LoadingServer(sock):
            session = await stack.enter_async_context(opening)
        server = open_server(
            session,
            sock,
            options.server,
            allow_origins=options.allow_origins,
            allow_hosts=options.allow_hosts,
            access_log=options.telemetry.log_level in ("info", "debug"),
            operator=stack.enter_context(operator_of(session.engine, options.telemetry, logs)),
            on_ready=lambda: _ready(session, sock),
        )
        lost = session.engine.lost
        lost.add_done_callback(lambda _: server.stop())
        await server.run()
        if lost.done():
            raise CliError(lost.result())


def _ready(session: LocalSession, sock: socket.socket) -> None:
    print(_ready_line(session, sock), flush=True)
    settle()


def _ready_line(session: LocalSession, sock: socket.socket) -> str:
    info = session.engine.info
    return (
        f"{styled('ready:', '1;32', sys.stdout)} {session.name} on {url_of(sock)} "
        f"({info.isa}, {info.threads} threads, context {info.context_length}, KV cache {info.kv_tokens} tokens)"
    )


def url_of(sock: socket.socket) -> str:
    """The address as clients on this machine write it."""
    host, port = sock.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if sock.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
