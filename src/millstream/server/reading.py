"""Memory for request bodies that are still coming: bounded over all connections together.

One body is bounded by itself (`millstream.server.body`), and so is the time that it may take; without this, many large
ones that come slowly would add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Message, Receive

from millstream.ir.errors import overloaded

_RETRY_SECONDS = 5.0


class ReadingRoom:
    """Counts the bytes of bodies from when they arrive until their last piece was read. Lives on one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    @contextmanager
    def counted(self, receive: Receive) -> Iterator[Receive]:
        """A ``receive`` that raises `ApiError` (429) when there is no room for more of any body."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            self._held += size - held
            held = size

        async def counting() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                more = message.get("more_body", False)
                hold(held + len(message.get("body", b"")) if more else 0)
                if self._held > self._limit:
                    hold(0)
                    raise overloaded("Too many large requests are being read.", retry_after=_RETRY_SECONDS)
            return message

        try:
            yield counting
        finally:
            hold(0)
