"""How a request wants to be served, on every surface alike: its class, its time limit, drafts. None of them changes a
token of the answer."""

from __future__ import annotations

import math

import msgspec

from millstream.ir.errors import invalid
from millstream.ir.request import PRIORITY_RANGE, Service
from millstream.surfaces.fields import Field

MAX_TIMEOUT = 86_400.0
"""Seconds that a request may give itself at most."""

QUEUE_FIELDS = (
    Field(
        "priority",
        "honoured",
        f"{PRIORITY_RANGE[0]} to {PRIORITY_RANGE[1]}, default 0 or that of the API key: lower is served first, as in "
        "vLLM. Waiting requests rise by one in ten seconds, up to the best that is present.",
    ),
    Field(
        "timeout",
        "honoured",
        f"Seconds, above 0 and at most {MAX_TIMEOUT:g}: an answer that is not complete by then ends as one that "
        "reached its token limit, in the queue too. Default: what the operator set, else none.",
    ),
)
FIELDS = (
    *QUEUE_FIELDS,
    Field(
        "speculation",
        "honoured",
        "false: no tokens are drafted from prompt and answer so far, and those that a grammar leaves no choice about "
        "are sampled too. It changes the speed, never a token. Default true.",
    ),
)


class QueueBody(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a request that waits for its turn, as they are on the wire: null is absent."""

    priority: int | None = None
    timeout: float | None = None


class ServiceBody(QueueBody, frozen=True, kw_only=True):
    """The same for a request that generates."""

    speculation: bool | None = None


def service(body: QueueBody) -> Service:
    """Read the fields. Raises `ApiError` (400) that names the field and its range."""
    priority = body.priority
    low, high = PRIORITY_RANGE
    if priority is not None and not low <= priority <= high:
        raise invalid(f"priority must be between {low} and {high}.", param="priority")
    timeout = body.timeout
    if timeout is not None and not (math.isfinite(timeout) and 0 < timeout <= MAX_TIMEOUT):
        raise invalid(f"timeout must be above 0 and at most {MAX_TIMEOUT:g} seconds.", param="timeout")
    speculation = not isinstance(body, ServiceBody) or body.speculation is not False
    return Service(priority=priority, timeout=timeout, speculation=speculation)
