"""The events of one response: numbered without gaps, gathered until they are sent."""

from __future__ import annotations

from typing import Any

from millstream.surfaces.openai_common import to_json


class Ladder:
    """Writes events. ``silent``: none is made, for a response that is not streamed."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._frames: list[bytes] = []
        self._sequence = 0

    def tell(self, kind: str, fields: dict[str, Any]) -> None:
        """One event."""
        if self._silent:
            return
        data = to_json({"type": kind, **fields, "sequence_number": self._sequence})
        self._frames.append(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n")
        self._sequence += 1

    def more(self, head: bytes, text: str) -> None:
        """An event of which only the text is new; ``head`` is its `delta_head`."""
        if self._silent:
            return
        self._frames.append(head + to_json(text) + b',"sequence_number":%d}\n\n' % self._sequence)
        self._sequence += 1

    def take(self) -> bytes:
        """The frames since the last time."""
        frames = self._frames
        if not frames:
            return b""
        self._frames = []
        return frames[0] if len(frames) == 1 else b"".join(frames)


def delta_head(kind: str, fields: dict[str, Any]) -> bytes:
    """The constant part of an event that carries text in ``delta``, so that a delta is a join, not a serialisation."""
    return b"event: " + kind.encode() + b"\ndata: " + to_json({"type": kind, **fields})[:-1] + b',"delta":'
