"""The time that a request gives itself. A choice whose time is up ends as one that reached its token limit, with the
tokens it has, also if it has none; what has no such end fails instead."""

from __future__ import annotations

import time

from millstream.ir.errors import ApiError
from millstream.ir.request import Service


def deadline_of(service: Service) -> float | None:
    """When a request that begins now ends at the latest, by the monotonic clock."""
    return None if service.timeout is None else time.monotonic() + service.timeout


def timed_out(before: str) -> ApiError:
    """A 504: the request's time was up before there was something worth an answer."""
    return ApiError(
        f"The request's time was up before {before}. Raise 'timeout', or try again when there is less to do.",
        type="server_error",
        code="timeout",
        status=504,
    )
