"""Memory that a large request took, given back to the system.

The C library keeps what was freed for the next allocation; after a body of many megabytes that is most of what the
process holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Scope

from millstream.ir.memory import give_back_pages
from millstream.ir.threads import beside

LARGE_BYTES = 1 << 20
DELAY_SECONDS = 1.0
"""After the request, so that a burst of large ones costs one call."""


def is_large(scope: Scope) -> bool:
    """Whether a request's body is large, or of a length that is not announced."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return True
        if name == b"content-length" and value.isdigit():
            return len(value) > 15 or int(value) >= LARGE_BYTES
    return False


class MemoryKeeper:
    """Gives memory back a moment after it was asked to; lives on one event loop."""

    def __init__(self, trim: Callable[[], object] = give_back_pages) -> None:
        self._trim = trim
        self._pending = False

    def give_back(self) -> None:
        """Soon, once for all who ask until then."""
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_later(DELAY_SECONDS, self._start)

    def _start(self) -> None:
        self._pending = False
        self._work = asyncio.ensure_future(beside(self._trim))
