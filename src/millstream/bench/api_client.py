"""A client that costs next to nothing: raw sockets, answers kept as bytes and read after the measurement."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from types import TracebackType

from millstream.bench.errors import BenchError

_LAST_CHUNK = b"0\r\n\r\n"
_READ = 1 << 16


class Connections:
    """Keep-alive connections to one server; `ask` sends one request over each."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                sock = socket.create_connection(address, timeout=30)
                sock.setblocking(False)
                self._sockets.append(sock)
                self._selector.register(sock, selectors.EVENT_READ, len(self._sockets) - 1)
        except OSError as error:
            self.close()
            raise BenchError(f"no connection to {address[0]}:{address[1]}: {error}") from None

    def __enter__(self) -> Connections:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._selector.close()

    def ask(self, requests: Sequence[bytes], *, seconds: float = 120.0) -> list[bytes]:
        """Send request k over connection k, all at once; each raw answer, head and chunks.

        Raises:
            BenchError: an answer is no streamed 200, or not all were there after ``seconds``.
        """
        try:
            return self._ask(requests, time.monotonic() + seconds)
        except OSError as error:
            raise BenchError(f"the connection broke: {error}") from None

    def _ask(self, requests: Sequence[bytes], until: float) -> list[bytes]:
        answers = [bytearray() for _ in requests]
        open_streams = len(answers)
        for sock, request in zip(self._sockets, requests, strict=False):
            sock.send(request)  # a request is far smaller than a socket's buffer
        while open_streams:
            left = until - time.monotonic()
            if left <= 0:
                raise BenchError(f"{open_streams} of {len(requests)} streams had no end in time")
            for key, _ in self._selector.select(left):
                answer = answers[key.data]
                data = self._sockets[key.data].recv(_READ)
                if not data:
                    raise BenchError(f"the server closed a connection after {bytes(answer[:300])!r}")
                fresh = not answer
                answer += data
                if fresh and not answer.startswith(b"HTTP/1.1 200"):
                    raise BenchError(f"the server refused: {bytes(answer[:500])!r}")
                # An event ends with a blank line, so no other chunk ends like this.
                if answer.endswith(_LAST_CHUNK):
                    open_streams -= 1
        return [bytes(answer) for answer in answers]


def http_request(path: str, body: bytes, host: str) -> bytes:
    """A POST of JSON over a connection that is kept."""
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Authorization: Bearer none\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def body_of(answer: bytes) -> bytes:
    """The body of a raw chunked answer. Raises `BenchError` if its chunks are broken."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        raise BenchError("the answer is not chunked")
    parts = []
    at = 0
    try:
        while True:
            end = rest.index(b"\r\n", at)
            size = int(rest[at:end], 16)
            at = end + 2
            if size == 0:
                break
            parts.append(rest[at : at + size])
            if rest[at + size : at + size + 2] != b"\r\n":
                raise ValueError
            at += size + 2
    except ValueError:
        raise BenchError("the answer's chunks are broken") from None
    if rest[at:] != b"\r\n":
        raise BenchError("something follows the answer's last chunk")
    return b"".join(parts)
