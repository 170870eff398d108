"""The HTTP server, put together from its parts."""

from __future__ import annotations

import socket
from collections.abc import Callable

from starlette.middleware import Middleware

from millstream.cli.errors import CliError
from millstream.cli.opening import Hosted
from millstream.cli.options import ServerOptions
from millstream.journal.writer import Journal
from millstream.keys.file import KeyFileError, default_keys_path
from millstream.server.admin.side import Operator
from millstream.server.app import create_app
from millstream.server.journaling import Journalled
from millstream.server.origins import is_loopback
from millstream.server.run import HttpServer
from millstream.server.settings import Settings
from millstream.server.sqlite_store import default_store_path


def open_server(
    hosted: Hosted,
    sock: socket.socket,
    options: ServerOptions,
    *,
    allow_origins: tuple[str, ...],
    allow_hosts: tuple[str, ...],
    access_log: bool,
    operator: Operator,
    on_ready: Callable[[], None],
    journal: Journal | None = None,
) -> HttpServer:
    """The HTTP server of these models on a bound socket; ``on_ready`` is called once it answers.

    A server that listens on a loopback address is called by loopback names and ``allow_hosts``; any other by any name.

    Raises:
        CliError: the keys cannot be read.
    """
    settings = Settings(
        allow_origins=allow_origins,
        allow_hosts=allow_hosts if is_loopback(sock.getsockname()[0]) else None,
        access_log=access_log,
        request_seconds=options.request_timeout,
        stall_seconds=options.stall_timeout,
        store_path=default_store_path(),
        keys_path=options.keys_file or default_keys_path(),
        api_key=options.api_key,
    )
    layers = [] if journal is None else [Middleware(Journalled, journal=journal)]
    try:
        app = create_app(hosted.host, hosted.host, settings, desk=hosted.desk, layers=layers, operator=operator)
    except KeyFileError as error:
        raise CliError(str(error)) from None
    return HttpServer(app, sock, settings, on_ready=on_ready)
