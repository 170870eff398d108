"""What belongs to the HTTP request that the current task answers."""

from __future__ import annotations

from contextvars import ContextVar

traceparent: ContextVar[str | None] = ContextVar("traceparent", default=None)
"""The W3C header of that name, as the client sent it: which trace the request is part of."""
