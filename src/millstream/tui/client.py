"""The operator's API as a client sees it: requests out, checked types in, `ServerError` for all that goes wrong."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from millstream.admin.views import LogLine, RequestDetail, Snapshot
from millstream.tui.errors import ServerError, failure, refusal
from millstream.tui.sse import Event, EventTooLong, read_events
from millstream.tui.text import line

DEFAULT_URL = "http://127.0.0.1:8000"
MAX_BODY_BYTES = 16 * 1024 * 1024
_ERROR_BYTES = 64 * 1024
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 20.0
_SILENCE_SECONDS = 30.0
"""A stream has keep-alives every ten seconds; a server that misses three is gone."""

T = TypeVar("T")


class Server:
    """One server. ``key``: sent as a bearer token, to this server only (redirects are not followed).

    Raises `ValueError` for an address or a key that cannot be used.
    """

    def __init__(self, url: str = DEFAULT_URL, key: str | None = None) -> None:
        self.url = checked_url(url)
        self.key = checked_key(key) if key else None
        headers = {"user-agent": "millstream-top"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        local = urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None),
            # A proxy would be asked for this machine as well; loading certificates takes 30 ms.
            trust_env=not local,
            verify=self.url.startswith("https"),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def snapshots(self, interval: float) -> AsyncIterator[Snapshot]:
        """What the server tells of itself, once every ``interval`` seconds."""
        silence = max(_SILENCE_SECONDS, 3 * interval)
        async for event in self._events("/v1/events", {"interval": f"{interval:g}"}, silence):
            if event.name == "snapshot":
                yield _decode(event.data.encode("utf-8", "replace"), Snapshot)

    async def logs(self) -> AsyncIterator[LogLine]:
        """The last lines of the server's log, then those that follow."""
        async for event in self._events("/v1/admin/logs", {"level": "debug", "lines": "1000"}, _SILENCE_SECONDS):
            if event.name == "log":
                yield _decode(event.data.encode("utf-8", "replace"), LogLine)

    async def request(self, request_id: str) -> RequestDetail:
        """One request, open or lately ended."""
        return _decode(await self._body("GET", _request_path(request_id)), RequestDetail)

    async def wire(self, request_id: str, surface: str) -> AsyncIterator[str]:
        """The answer of a request in a surface's wire format from its begin, in pieces as they come, undecoded but for
        UTF-8."""
        path = f"{_request_path(request_id)}/wire"
        async with self._stream("GET", path, params={"surface": surface}, silence=None) as response:
            async for text in response.aiter_text():
                yield text

    async def act(self, request_id: str, verb: str) -> None:
        """``cancel``, ``pause`` or ``resume`` a request."""
        await self._body("POST", f"{_request_path(request_id)}/{verb}")

    async def set_priority(self, request_id: str, priority: int) -> None:
        """Lower is served first."""
        await self._body("POST", f"{_request_path(request_id)}/priority", {"priority": priority})

    async def model_action(self, verb: str, name: str) -> None:
        """``load``, ``unload``, ``pull`` or ``pull/cancel`` a model; it goes on in the background."""
        await self._body("POST", f"/v1/admin/models/{verb}", {"model": name})

    async def chat(self, body: dict[str, Any]) -> AsyncIterator[Event]:
        """The events of a streamed chat completion, without the ``[DONE]`` that ends them."""
        async for event in self._events("/v1/chat/completions", {}, 2 * _SILENCE_SECONDS, body):
            if event.data == "[DONE]":
                return
            yield event

    async def _events(
        self, path: str, params: dict[str, str], silence: float | None, body: dict[str, Any] | None = None
    ) -> AsyncIterator[Event]:
        method = "GET" if body is None else "POST"
        async with self._stream(method, path, params=params, silence=silence, json=body) as response:
            kind = response.headers.get("content-type", "no type")
            if not kind.startswith("text/event-stream"):
                raise ServerError(f"no event stream but {line(kind, 40)} came from {path}; is this Millstream?")
            try:
                async for event in read_events(response.aiter_bytes()):
                    yield event
            except EventTooLong:
                raise ServerError(f"an event of {path} is too long to be read.") from None

    @contextlib.asynccontextmanager
    async def _stream(
        self, method: str, path: str, *, params: dict[str, str], silence: float | None, json: Any = None
    ) -> AsyncIterator[httpx.Response]:
        """An answer with a body that is read as it comes. ``silence``: seconds without a byte that are too many."""
        timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS, read=silence)
        with _told():
            async with self._client.stream(method, path, params=params, json=json, timeout=timeout) as response:
                if response.status_code != 200:
                    raise refusal(response.status_code, await _limited(response, _ERROR_BYTES), response.headers)
                yield response

    async def _body(self, method: str, path: str, json: Any = None) -> bytes:
        with _told():
            async with self._client.stream(method, path, json=json) as response:
                if response.is_success:
                    return await _limited(response, MAX_BODY_BYTES)
                raise refusal(response.status_code, await _limited(response, _ERROR_BYTES), response.headers)


def checked_url(text: str) -> str:
    """An address as a user may write it, such as ``localhost:8000``, as a base URL. Raises `ValueError`."""
    url = text.strip()
    url = (url if "://" in url else f"http://{url}").rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable:
        raise ValueError(f"{text!r} is no server's address; write http://HOST:PORT")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the address must be http://HOST:PORT[/PATH] alone; a key goes into --key")
    return url


def checked_key(key: str) -> str:
    """A key that fits into a header. Raises `ValueError`."""
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("the key has characters that no key has; was it copied whole?")
    return key


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Failures of the transport as `ServerError`."""
    try:
        yield
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as error:
        raise failure(error) from error


async def _limited(response: httpx.Response, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit:
            raise ServerError("the server's answer is too long to be read.")
    return bytes(body)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ServerError(f"what the server sent cannot be read: {line(str(error), 160)}") from None


def _request_path(request_id: str) -> str:
    return f"/v1/admin/requests/{quote(request_id, safe='')}"
