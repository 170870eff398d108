"""Bounds on the head of a request. h11 bounds what it has to keep while it waits for more; a head that comes at once is
bounded here."""

from __future__ import annotations

from starlette.types import Scope

from millstream.ir.errors import ApiError


class HeadError(ApiError):
    """After it, where the next request begins is not to be trusted: the connection is closed."""


MAX_HEADER_BYTES = 64 * 1024
"""Of all names and values together."""

MAX_HEADERS = 128
MAX_TARGET_BYTES = 16 * 1024
"""Of path and query; the longest honest one is a list with its metadata filters."""


def check_head(scope: Scope) -> None:
    """Raises `HeadError` (400, 414, 431)."""
    if len(scope.get("raw_path", b"")) + len(scope.get("query_string", b"")) > MAX_TARGET_BYTES:
        raise HeadError(f"The URL is longer than {MAX_TARGET_BYTES} bytes.", code="uri_too_long", status=414)
    headers = scope["headers"]
    if len(headers) > MAX_HEADERS:
        raise head_too_large(f"The request has more than {MAX_HEADERS} headers.")
    if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        raise head_too_large()
    names = {name for name, _ in headers}
    if b"content-length" in names and b"transfer-encoding" in names:
        # A proxy before this server may go by the one and h11 by the other: request smuggling.
        raise HeadError("Content-Length and Transfer-Encoding exclude each other.")


def head_too_large(message: str = f"The headers are larger than {MAX_HEADER_BYTES} bytes.") -> HeadError:
    """A 431."""
    return HeadError(message, code="headers_too_large", status=431)
