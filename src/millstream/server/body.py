"""Reading a request's body within bounds of size, time and kind."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope

from millstream.ir.errors import ApiError


class ClientGone(Exception):
    """The client left; nobody is to be answered."""


async def read_body(scope: Scope, receive: Receive, *, limit: int, seconds: float) -> bytes:
    """The whole body of a JSON request.

    Raises:
        ApiError: 415 (not JSON, or compressed), 413 (above ``limit`` bytes), 408 (not there after ``seconds``).
        ClientGone: the client left before the end.
    """
    headers = dict(scope["headers"])
    _check_kind(headers)
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, limit)
    except TimeoutError:
        raise ApiError(f"The request body was not complete after {seconds:g} s.", status=408) from None


async def _read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _check_kind(headers: dict[bytes, bytes]) -> None:
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    # A web page may send other kinds, or none, without asking first: only JSON makes the browser ask.
    undeclared = not kind and b"origin" not in headers
    if not undeclared and kind != b"application/json" and not kind.endswith(b"+json"):
        raise ApiError(
            "The content type must be application/json: add the header 'Content-Type: application/json'.",
            code="unsupported_media_type",
            status=415,
        )
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
        raise ApiError("Compressed request bodies are not supported.", code="unsupported_media_type", status=415)


def _too_large(limit: int) -> ApiError:
    return ApiError(f"The request body is larger than {limit} bytes.", code="request_too_large", status=413)
