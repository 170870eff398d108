"""Processes that end with the one that started them, however that ends."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


END_WITH_PARENT: Callable[[], None] | None = _end_with_parent if sys.platform == "linux" else None
"""The ``preexec_fn`` of a child that Linux sends SIGTERM when the thread that started it is gone."""
