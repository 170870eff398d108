"""Memory that was freed, given back to the system: the C library keeps it for the next allocation."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def give_back_pages() -> None:
    """What glibc can give back; other C libraries have no such call, and nothing happens. It takes milliseconds, and
    does not hold the GIL."""
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
