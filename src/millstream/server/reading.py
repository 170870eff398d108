"""Memory for request bodies that are still coming or wait to be decoded: bounded over all connections together.

One body is bounded by itself (`millstream.server.body`), and so is the time that it may take; without this, many large
ones that come slowly, or faster than they can be decoded, would add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Message, Receive, Scope

from millstream.ir.errors import overloaded

_RETRY_SECONDS = 5.0

_SMALL_PART = 1000
"""Bodies of less than this part of the room always fit: there are no more connections than that, and who asks little
must not suffer from those who send much."""

_BODY = "body"
"""State: the `Body` of a request."""


class ReadingRoom:
    """Counts the bytes of bodies from when they arrive until they are no longer needed. Lives on one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    @contextmanager
    def reading(self, scope: Scope, receive: Receive) -> Iterator[tuple[Scope, Receive]]:
        """A scope and a ``receive`` whose body is counted until `body_decoded`, or the end of the request. When there
        is no room for more, ``receive`` raises `ApiError` (429)."""
        body = Body(self)
        try:
            yield {**scope, "state": {**scope.get("state", {}), _BODY: body}}, _counting(body, receive)
        finally:
            body.hold(0)

    def check(self, size: int) -> None:
        """Whether a body of so many bytes may be there. Raises `ApiError`."""
        if self.held > self._limit and size > self._limit // _SMALL_PART:
            raise overloaded("Too many large requests are being read.", retry_after=_RETRY_SECONDS)


class Body:
    """What one request holds of the room."""

    def __init__(self, room: ReadingRoom) -> None:
        self._room = room
        self._size = 0

    def hold(self, size: int) -> None:
        """So many bytes in all."""
        self._room.held += size - self._size
        self._size = size

    def grow(self, size: int) -> None:
        """So many bytes more. Raises `ApiError`."""
        self.hold(self._size + size)
        try:
            self._room.check(self._size)
        except BaseException:
            self.hold(0)
            raise


def _counting(body: Body, receive: Receive) -> Receive:
    async def counting() -> Message:
        message = await receive()
        if message["type"] == "http.request":
            body.grow(len(message.get("body", b"")))
        return message

    return counting


def body_decoded(scope: Scope) -> None:
    """The body of a request is no longer in memory: what it was decoded into has bounds of its own."""
    body = scope.get("state", {}).get(_BODY)
    if isinstance(body, Body):
        body.hold(0)
