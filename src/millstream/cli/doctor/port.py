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
    from millstream.server.run import bind

    try:
        bind(host, port).close()
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            mend = "stop that program, or serve with another --port (0 picks a free one)"
            yield problem("port", f"{host}:{port} is taken by {_holder(host, port)}", mend)
        else:
            reason = getattr(error, "strerror", None) or str(error)
            yield problem("port", reason, "serve with another --host or --port; ports below 1024 need privileges")
        return
    yield ok("port", f"{host}:{port} is free")


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
