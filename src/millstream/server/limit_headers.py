"""How a key stands with its limits, in the headers that the official clients' users read.

OpenAI's tell when a limit is full again as a duration (``1m2.5s``), Anthropic's as a time (RFC 3339).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from millstream.keys.ledger import Room, Standing

_KINDS = ("requests", "tokens")
_PARTS = ("limit", "remaining", "reset")
EXPOSED = (
    *(f"x-ratelimit-{part}-{kind}" for kind in _KINDS for part in _PARTS),
    *(f"anthropic-ratelimit-{kind}-{part}" for kind in _KINDS for part in _PARTS),
)
"""Names that web pages of allowed origins may read."""


def limit_headers(standing: Standing, *, anthropic: bool) -> list[tuple[bytes, bytes]]:
    """The headers of those limits that a key has."""
    rooms = {"requests": standing.requests, "tokens": standing.tokens}
    return [
        (name.encode(), value.encode())
        for kind, room in rooms.items()
        if room is not None
        for name, value in (_anthropic(kind, room) if anthropic else _openai(kind, room)).items()
    ]


def _openai(kind: str, room: Room) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{kind}": str(room.limit),
        f"x-ratelimit-remaining-{kind}": str(room.remaining),
        f"x-ratelimit-reset-{kind}": duration(room.reset),
    }


def _anthropic(kind: str, room: Room) -> dict[str, str]:
    full = datetime.now(UTC) + timedelta(seconds=math.ceil(min(room.reset, 1e9)))
    return {
        f"anthropic-ratelimit-{kind}-limit": str(room.limit),
        f"anthropic-ratelimit-{kind}-remaining": str(room.remaining),
        f"anthropic-ratelimit-{kind}-reset": full.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def duration(seconds: float) -> str:
    """Seconds as OpenAI writes them: ``0s``, ``350ms``, ``1m2.5s``, ``1h0m3s``; rounded up to milliseconds."""
    milliseconds = math.ceil(seconds * 1000 - 1e-6)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    parts = f"{hours}h" if hours else ""
    parts += f"{minutes}m" if hours or minutes else ""
    return f"{parts}{rest / 1000:g}s"
