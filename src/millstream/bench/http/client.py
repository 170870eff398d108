"""A streaming client over plain asyncio: it reads what it must to know when tokens came, and little else, as it
shares the processors with the server that it measures."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import msgspec

from millstream.bench.errors import BenchError

_LINE_LIMIT = 1 << 20
_BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)
_ERROR_BYTES = 300


class Timings(msgspec.Struct):
    """What became of one request. ``sent`` and ``stamps`` (one per event that brought tokens) by `time.perf_counter`;
    ``error``: why there is no good end."""

    sent: float
    stamps: list[float]
    ended: float = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: str | None = None

    @property
    def first_token(self) -> float:
        """Seconds to the first token; only of a request without ``error``."""
        return self.stamps[0] - self.sent


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()

    @property
    def has_tokens(self) -> bool:
        return bool(self.content or self.reasoning_content or self.reasoning or bytes(self.tool_calls))


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Chunk).decode


class Server:
    """One server by its base URL, with or without ``/v1``. ``key``: sent as a bearer token."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            raise BenchError(f"{url!r} has no valid port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BenchError(f"{url!r} is no address of a server; write http://HOST:PORT")
        self.url = url
        self._host, self._tls = parts.hostname, parts.scheme == "https"
        self._port = port or (443 if self._tls else 80)
        self._base = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self._head = f"Host: {parts.netloc.rpartition('@')[2]}\r\nConnection: close\r\n"
        if key:
            self._head += f"Authorization: Bearer {key}\r\n"

    async def model(self) -> str:
        """The first model that is served. Raises `BenchError` if the server does not say."""
        status, body = await self._whole("GET", "/models")
        try:
            return str(msgspec.json.decode(body)["data"][0]["id"])
        except (msgspec.DecodeError, KeyError, IndexError, TypeError):
            raise BenchError(f"{self.url}: /v1/models was answered with {status}: {_said(body)}") from None

    async def chat(self, body: bytes, seconds: float, *, on_sent: Callable[[Timings], None] | None = None) -> Timings:
        """Stream one chat completion; failures are told in the result. ``on_sent`` gets the result before anything has
        come of it, to look at while it grows."""
        found = Timings(time.perf_counter(), stamps=[])
        if on_sent is not None:
            on_sent(found)
        try:
            async with asyncio.timeout(seconds):
                await self._stream(body, found)
        except TimeoutError:
            found.error = f"no end after {seconds:g} s"
        except _BROKEN as error:
            found.error = f"the connection broke: {_words(error)}"
        found.ended = time.perf_counter()
        if found.error is None and not found.stamps:
            found.error = "an answer without a token"
        return found

    async def _stream(self, body: bytes, found: Timings) -> None:
        done = False
        async for status, data in self._lines("POST", "/chat/completions", body):
            if status != 200:
                found.error = f"HTTP {status}: {_said(data)}"
                return
            if not data.startswith(b"data:"):
                continue
            data = data[5:].strip()
            if data == b"[DONE]":
                done = True
                continue
            self._event(data, found)
        if not done and found.error is None:
            found.error = "the stream has no end"

    @staticmethod
    def _event(data: bytes, found: Timings) -> None:
        try:
            chunk = _decode(data)
        except msgspec.DecodeError:
            found.error = f"an event is no chunk of a chat completion: {_short(data)}"
            return
        if bytes(chunk.error):
            found.error = f"the stream ended with an error: {_said(data)}"
        if any(choice.delta.has_tokens for choice in chunk.choices):
            found.stamps.append(time.perf_counter())
        if (usage := chunk.usage) is not None:
            found.tokens, found.prompt_tokens = usage.completion_tokens, usage.prompt_tokens
            details = usage.prompt_tokens_details
            found.cached_tokens = (details.cached_tokens or 0) if details else 0

    async def _whole(self, method: str, path: str) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(30):
                found = [line async for line in self._lines(method, path, b"")]
        except _BROKEN as error:
            raise BenchError(f"{self.url} does not answer: {_words(error)}") from None
        return (found[0][0] if found else 0), b"\n".join(line for _, line in found)

    async def _lines(self, method: str, path: str, body: bytes) -> AsyncIterator[tuple[int, bytes]]:
        """The status and each line of the answer's body, without its end."""
        context = ssl.create_default_context() if self._tls else None
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=context, limit=_LINE_LIMIT)
        try:
            writer.write(
                f"{method} {self._base}{path} HTTP/1.1\r\n{self._head}Accept: text/event-stream, application/json\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            status = _status(head)
            pieces = _chunks(reader) if b"transfer-encoding: chunked" in head else _rest(reader)
            kept = b""
            async for piece in pieces:
                *lines, kept = (kept + piece).split(b"\n")
                for line in lines:
                    yield status, line.rstrip(b"\r")
            if kept or status != 200:
                yield status, kept
        finally:
            writer.close()


def _status(head: bytes) -> int:
    """Raises `ValueError` if a head is not HTTP's."""
    line = head.split(b"\r\n", 1)[0].split()
    if len(line) < 2 or not line[0].startswith(b"http/"):
        raise ValueError(f"this is no HTTP server: {_short(head)}")
    return int(line[1])


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]


async def _rest(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(1 << 16):
        yield piece


class _Problem(msgspec.Struct, frozen=True):
    message: str


class _Envelope(msgspec.Struct, frozen=True):
    error: _Problem


def _said(body: bytes) -> str:
    """The message of an error body, in OpenAI's envelope or as it is."""
    try:
        return _short(msgspec.json.decode(body, type=_Envelope).error.message.encode())
    except msgspec.DecodeError:
        return _short(body)


def _words(error: Exception) -> str:
    """The operating system's own, without its numbers; asyncio wraps them."""
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0).lower()
    return str(error) or type(error).__name__


def _short(data: bytes) -> str:
    return data[:_ERROR_BYTES].decode("utf-8", "replace").strip() or "nothing"
