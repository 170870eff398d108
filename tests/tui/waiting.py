"""Waiting for what a screen will show, without measuring time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object]) -> None:
    """Return once ``holds()`` is true. Raises `AssertionError` if that takes absurdly long."""
    wait = 0.01
    for _ in range(250):
        if holds():
            return
        await asyncio.sleep(wait)
        wait = min(0.25, wait * 1.2)
    raise AssertionError("it did not come about")
