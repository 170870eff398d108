"""Waiting for what a screen will show, without measuring time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_SECONDS = 20.0


async def until(holds: Callable[[], object]) -> None:
    """Return once ``holds()`` is true. Raises `AssertionError` if that takes absurdly long."""
    for _ in range(int(_SECONDS / 0.01)):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")
