"""The address: free, or whose?"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from millstream.cli.doctor.findings import Finding, ok, problem
from millstream.cli.errors import CliError
from millstream.cli.http import Client

_SECONDS = 2.0


def check_port(host: str, port: int) -> Iterator[Finding]:
    """Whether a server could listen here."""
    from millstream.server.binding import bind

    try:
        bind(host, port).close()
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            mend = "stop that program, or serve with another --port (0 picks a free one)"
            yield problem("port", f"{host}:{port} is taken by {_holder(host, port)}", mend)
        else:
            yield problem("port", getattr(error, "strerror", None) or str(error), _mend(error, host))
        return
    yield ok("port", f"{host}:{port} is free")


def _mend(error: Exception, host: str) -> str:
    code = getattr(error, "errno", None)
    if code in (errno.EACCES, errno.EPERM):
        return "ports below 1024 need privileges: serve with --port 8000"
    if code == errno.EADDRNOTAVAIL:
        return (
            "no interface of this machine has that address: serve with --host 127.0.0.1, or 0.0.0.0 for every network"
        )
    if isinstance(error, OSError) and "name" in str(error.strerror).lower():
        return f"{host!r} cannot be looked up: serve with an address, such as --host 127.0.0.1"
    return "serve with another --host or --port"


def _holder(host: str, port: int) -> str:
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    try:
        socket.create_connection((here, port), timeout=_SECONDS).close()
    except OSError:
        return "a program that takes no connections"
    client = Client(f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}", seconds=_SECONDS)
    try:
        names = [str(model["id"]) for model in client.get("/v1/models")["data"]]
        return f"a server of {', '.join(names)}{_kind(client)}"
    except CliError as error:
        return "a server that wants a key" if ": 401:" in error.message else "another program"
    except (KeyError, TypeError):
        return "another program"


def _kind(client: Client) -> str:
    try:
        return " (Millstream)" if "paths" in client.get("/openapi.json") and _says_millstream(client) else ""
    except (CliError, TypeError):
        return ""


def _says_millstream(client: Client) -> bool:
    return "millstream" in str(client.get("/openapi.json").get("info", "")).lower()
