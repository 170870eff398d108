"""Headers that every answer has: what comes from here is not to be guessed at, framed or kept by caches."""

from __future__ import annotations

from collections.abc import Sequence

Headers = Sequence[tuple[bytes, bytes]]

_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_PAGES = (
    (b"content-security-policy", b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
"""A page that needs more than nothing has a policy of its own."""


def guarded_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers of an answer with those that it leaves out."""
    named = dict(headers)
    html = named.get(b"content-type", b"").startswith(b"text/html")
    wanted = (*_ALWAYS, *_PAGES) if html else _ALWAYS
    return [*headers, *(header for header in wanted if header[0] not in named)]
