"""The answers of a server whose model is still being loaded: alive, not ready, and everything else a 503.

It holds the same listening socket as the server that follows, and knows just enough HTTP to say no.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from http import HTTPStatus
from types import TracebackType

from starlette.responses import Response

from millstream.ir.errors import engine_failed
from millstream.server.dialect import surface_of
from millstream.server.errors import error_response
from millstream.server.health import Report, answer

_HEAD_BYTES = 64 * 1024
_SECONDS = 5.0
_RETRY_AFTER_SECONDS = 5.0
_REASON = "The model is being loaded."


class LoadingServer:
    """Answers on a listening socket while its block runs. The socket stays open for whoever follows."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> LoadingServer:
        self._server = await asyncio.start_server(_serve, sock=self._sock.dup(), limit=_HEAD_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request, one answer, and the end of the connection."""
    try:
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head.split(b"\r\n", 1)[0]))
                writer.write_eof()
                # What the client still sends is read: to close before would take the answer from it.
                while await reader.read(_HEAD_BYTES):
                    pass
    finally:
        writer.close()


def _response(line: bytes) -> bytes:
    """The answer to a request line."""
    method, _, rest = line.decode("latin-1").partition(" ")
    path = rest.split(" ")[0].split("?")[0]
    if path in ("/health", "/ready") and method in ("GET", "HEAD"):
        response: Response = answer(Report("loading", _REASON), [], ok=path == "/health")
    else:
        problem = engine_failed(_REASON, retry_after=_RETRY_AFTER_SECONDS)
        response = error_response(problem, surface_of({"type": "http", "path": path, "headers": []}))
    head = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}", "connection: close"]
    head += [f"{name.decode()}: {value.decode()}" for name, value in response.raw_headers]
    body = b"" if method == "HEAD" else bytes(response.body)
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
