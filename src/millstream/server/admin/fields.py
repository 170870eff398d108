"""The bodies of an operator's commands, and the fields that they know."""

from __future__ import annotations

import msgspec

from millstream.ir.errors import invalid, missing
from millstream.ir.request import PRIORITY_RANGE
from millstream.surfaces.fields import field_table, honoured
from millstream.surfaces.openai_params import decode_body


class PriorityBody(msgspec.Struct, frozen=True, kw_only=True):
    """The class that a request is to be served in."""

    priority: int | None = None


PRIORITY_FIELDS = field_table(
    (honoured("priority", f"Required; {PRIORITY_RANGE[0]} to {PRIORITY_RANGE[1]}, lower is served first."),)
)


def priority_of(body: bytes) -> int:
    """The class that a body names. Raises `ApiError` (400)."""
    priority = decode_body(body, PriorityBody, PRIORITY_FIELDS).priority
    if priority is None:
        raise missing("priority")
    low, high = PRIORITY_RANGE
    if not low <= priority <= high:
        raise invalid(f"priority must be between {low} and {high}.", param="priority")
    return priority
