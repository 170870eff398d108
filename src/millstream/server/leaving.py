"""Work for a client that may leave meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from millstream.ir.provider import DeltaStream
from millstream.server.body import ClientGone
from millstream.surfaces.sse import disconnected

T = TypeVar("T")


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work``, but cancel it as soon as the client leaves. Raises `ClientGone` then."""
    return await _until_gone(receive, asyncio.ensure_future(work))


async def opened(receive: Receive, opening: Coroutine[Any, Any, DeltaStream]) -> DeltaStream:
    """The stream that ``opening`` gives; one that arrives when nobody waits for it any more is closed.

    Raises:
        ClientGone: the client left before the stream was there.
    """
    task = asyncio.ensure_future(opening)
    try:
        return await _until_gone(receive, task)
    except BaseException:
        if task.done() and not task.cancelled() and task.exception() is None:
            await task.result().aclose()
        raise
    finally:
        del task  # as below


async def _until_gone(receive: Receive, working: asyncio.Task[T]) -> T:
    leaving = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        # What it raised knows this frame by its traceback: a circle that would keep a refused body until the garbage
        # collector comes.
        del working
