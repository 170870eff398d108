"""`top`: the terminal interface of a server, and `serve --tui`: both at once."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.errors import CliError
from millstream.cli.options import is_number
from millstream.cli.terminal import is_terminal, note

if TYPE_CHECKING:
    from millstream.tui.child import ServerProcess

KEY_VARIABLE = "MILLSTREAM_API_KEY"


def top(
    url: Annotated[str, typer.Option(metavar="URL", help="The server to look at.")] = "http://127.0.0.1:8000",
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar=KEY_VARIABLE, help="A key with admin rights, if the server has keys."),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.2, max=60, callback=is_number, help="How often the numbers are new."),
    ] = 1.0,
) -> None:
    """Watch and steer a running server: requests, models, logs, a chat and a benchmark.

    Keys are shown at the bottom of the screen; ? explains all, q quits.
    """
    check_terminal()
    from millstream.tui.app import TopApp
    from millstream.tui.client import Server

    try:
        server = Server(url, key)
    except ValueError as error:
        raise CliError(str(error), code=2) from None
    TopApp(server, interval=interval).run()


def check_terminal() -> None:
    """Raises `CliError` where nothing can be drawn, and says what works there instead."""
    instead = "for scripts there is GET /v1/events?once=true"
    if not all(is_terminal(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise CliError(f"the interface needs a terminal; {instead}")
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        raise CliError(
            f"TERM={os.environ.get('TERM', '')} names a terminal that cannot move its cursor; "
            f"if yours can, try TERM=xterm-256color; {instead}"
        )


def serve_with_top(host: str, port: int) -> None:
    """Run this command without ``--tui`` in a process of its own and show it; when the user leaves, it finishes its
    requests.

    Raises:
        CliError: no terminal, or the server ended by itself; the message is its last line.
    """
    check_terminal()
    from millstream.tui.app import TopApp
    from millstream.tui.child import ServerProcess
    from millstream.tui.client import Server

    process = ServerProcess(command_of(sys.argv[1:]))
    try:
        if (url := _address(process, host, port)) is not None:
            server = Server(url, os.environ.get(KEY_VARIABLE))
            TopApp(server, logs=process.logs, until=process.ended).run()
    except ValueError as error:
        raise CliError(str(error), code=2) from None
    finally:
        _finish(process)


def _address(process: ServerProcess, host: str, port: int) -> str | None:
    """Where to look. A free port is known when the server says it; None if it ended before."""
    if port:
        name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
    note("loading the model…")
    while process.url is None and process.returncode is None:
        time.sleep(0.1)
    return process.url


def _finish(process: ServerProcess) -> None:
    """Let the server drain, at most until a second Ctrl-C."""
    if process.returncode is None:
        note("the server finishes its open requests; Ctrl-C ends them")
        process.stop()
        try:
            process.wait()
        except KeyboardInterrupt:
            process.stop()
    with contextlib.suppress(KeyboardInterrupt):
        process.wait()
    if code := process.returncode:
        raise CliError(process.last_words() or f"the server ended with {code}", code=code if code > 0 else 1)


def command_of(arguments: Sequence[str]) -> list[str]:
    """The command line of the same server without its interface."""
    return [sys.executable, "-m", "millstream", *(each for each in arguments if each != "--tui")]
