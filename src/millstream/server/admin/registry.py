"""The requests that are being answered, and the last that were."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count

from millstream.ir.errors import ApiError
from millstream.ir.provider import DeltaStream
from millstream.server.admin.entry import End, Entry
from millstream.server.admin.facts import AnyRequest, Facts, asked_of, choices_of, prompt_of
from millstream.server.admin.stream import MeasuredStream
from millstream.server.body import ClientGone
from millstream.server.lifecycle import Lifecycle
from millstream.server.metrics import Metrics
from millstream.server.telemetry.context import traceparent
from millstream.surfaces.wire import request_id

ENDED_KEPT = 100

Listener = Callable[[Entry], None]
"""Is told of each request that has ended."""


class Requests:
    """All requests that generate: each enters with `begin` and leaves once, whatever happens to it."""

    def __init__(
        self,
        metrics: Metrics,
        lifecycle: Lifecycle,
        *,
        name_of: Callable[[str], str] = str,
        log_prompts: bool = False,
    ) -> None:
        """``name_of``: what people call a tenant. ``log_prompts``: entries keep the text of their requests for
        listeners."""
        self.metrics = metrics
        self.listeners: list[Listener] = [metrics.ended]
        self._lifecycle = lifecycle
        self._name_of = name_of
        self._log_prompts = log_prompts
        self._open: dict[str, Entry] = {}
        self._ended: deque[Entry] = deque(maxlen=ENDED_KEPT)
        self._handles = count(1)

    def __iter__(self) -> Iterator[Entry]:
        """Those that are open, oldest first."""
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def find(self, name: str) -> Entry | None:
        """An open request, or one of the last that ended."""
        found = self._open.get(name)
        return found or next((entry for entry in self._ended if entry.facts.id == name), None)

    def begin(self, surface: str, request: AnyRequest, *, since: float, streamed: bool = False) -> Entry:
        """A request enters; it is the one that the current task answers. ``since``: when its body was there."""
        facts = Facts(
            id=self._unique(request_id.get() or "req"),
            handle=f"{next(self._handles):x}",
            surface=surface,
            model=request.model,
            tenant=request.tenant,
            key=self._name_of(request.tenant),
            streamed=streamed,
            choices=choices_of(request),
            parent=traceparent.get(),
            asked=asked_of(request),
            prompt=prompt_of(request) if self._log_prompts else None,
        )
        entry = self._open[facts.id] = Entry(facts, request.service.priority or 0, since)
        return entry

    def answering(self, entry: Entry, stream: DeltaStream) -> DeltaStream:
        """The stream of its answer, measured as it is read; the request leaves with its end, or when it is closed."""
        return MeasuredStream(stream, entry, self.metrics, self.leave)

    def leave(self, entry: Entry, end: End | None = None, note: str = "") -> None:
        """A request leaves; again: nothing. ``end`` None: nobody waits for its answer any more."""
        if self._open.pop(entry.facts.id, None) is None:
            return
        if end is None:
            end, note = "cancelled", "the server stops" if self._lifecycle.draining else "the client left"
        entry.finish(end, note)
        self._ended.append(entry)
        for listener in self.listeners:
            listener(entry)
        entry.forget()

    def fail(self, entry: Entry, problem: BaseException) -> None:
        """A request leaves before there is a stream of its answer, or because it has none."""
        if isinstance(problem, ClientGone | asyncio.CancelledError):
            self.leave(entry)
            return
        entry.problem = (problem.code or str(problem.status)) if isinstance(problem, ApiError) else "internal_error"
        self.leave(entry, "failed", entry.problem)

    async def cancel(self, entry: Entry) -> None:
        """An operator ends a request."""
        close = entry.close
        self.leave(entry, "cancelled", "by the operator")
        await entry.cancel(close)

    def _unique(self, name: str) -> str:
        """Clients choose the ids of their requests, and may choose one twice."""
        if self.find(name) is None:
            return name
        return next(other for number in count(2) if self.find(other := f"{name}~{number}") is None)
