"""Which open requests end when. Pure: time is passed in."""

from __future__ import annotations

import heapq


class Deadlines:
    """Requests by the time at which they end."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._open: set[str] = set()

    @property
    def next(self) -> float | None:
        """The earliest deadline of an open request; None: there is none."""
        while self._heap and self._heap[0][1] not in self._open:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def add(self, request_id: str, deadline: float) -> None:
        """``request_id`` has not been added before."""
        self._open.add(request_id)
        heapq.heappush(self._heap, (deadline, request_id))

    def remove(self, request_id: str) -> None:
        """The request has ended; unknown ids are ignored."""
        self._open.discard(request_id)
        if len(self._heap) > 2 * len(self._open) + 16:
            self._heap = [entry for entry in self._heap if entry[1] in self._open]
            heapq.heapify(self._heap)

    def due(self, now: float) -> list[str]:
        """Requests whose time is up, which are forgotten."""
        ids = []
        while (deadline := self.next) is not None and deadline <= now:
            _, request_id = heapq.heappop(self._heap)
            self._open.discard(request_id)
            ids.append(request_id)
        return ids
