"""Waiting for what another task, thread or process does: for as long as that may take on a loaded machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds. A test whose product is right waits no longer than it needs."""


def wait_until(true: Callable[[], T], what: str = "it never came true", *, seconds: float = PATIENCE) -> T:
    """What ``true()`` is once it is true. Raises `AssertionError` with ``what`` if it never is."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return found


async def until(true: Callable[[], T], what: str = "it never came true", *, pause: float = 0.01) -> T:
    """As `wait_until`, while other tasks run; ``pause``: seconds between two looks, 0 for a look at every turn of the
    event loop, which misses nothing that lasts longer than one."""
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, what
        await asyncio.sleep(pause)
    return found


async def until_told(
    ask: Callable[[], Awaitable[T]], there: Callable[[T], object], what: str, *, pause: float = 0.0
) -> T:
    """What ``ask()`` answers once that is ``there``; ``pause`` as for `until`. Raises `AssertionError` with ``what``
    and the last answer."""
    end = time.monotonic() + PATIENCE
    while not there(answer := await ask()):
        assert time.monotonic() < end, f"{what}: {answer}"
        await asyncio.sleep(pause)
    return answer
