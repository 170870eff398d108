"""Reading a body: small ones at once, large ones beside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from millstream.ir.threads import beside

P = ParamSpec("P")
T = TypeVar("T")

LARGE_BODY = 128 * 1024
"""Bytes from which a body is decoded in a thread: about a millisecond of work, as a change of threads costs."""


async def decoded(size: int, decode: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``decode(*args, **kwargs)`` of a body of ``size`` bytes. Raises what ``decode`` raises."""
    if size < LARGE_BODY:
        return decode(*args, **kwargs)
    return await beside(decode, *args, **kwargs)
