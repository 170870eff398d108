"""How a process that serves runs: the fastest event loop there is, and a garbage collector that seldom looks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_YOUNG_OBJECTS = 10_000
"""New objects after which the collector looks at them; what a stream leaves behind is freed by counting."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def settle() -> None:
    """Call when start-up is over: what exists stays, so the collector need not walk it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed (it is not made for Windows)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
