"""Long computations beside the event loop, so that one large request does not stall the streams of all others.

The threads are few and shared: what is too much for them waits in their queue, not in memory that each of them takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 2

_pool = ThreadPoolExecutor(THREADS, "long-work")


async def beside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``function(*args, **kwargs)``, run in one of the threads. Cancelled before its turn, it never runs."""

    def call() -> T:
        return function(*args, **kwargs)

    return await asyncio.get_running_loop().run_in_executor(_pool, call)
