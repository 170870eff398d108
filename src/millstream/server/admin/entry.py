"""One request while it is open, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from millstream.admin.views import RequestDetail, RequestState, RequestView, TimelineEvent
from millstream.engine.protocol import SequenceView
from millstream.ir.deltas import Delta, Finish, Start, Usage
from millstream.ir.errors import ApiError
from millstream.ir.fold import UsageCounter
from millstream.server.admin.facts import AnyRequest, Facts
from millstream.server.admin.record import JOIN_EVERY, DeltaRecord

T = TypeVar("T")
R = TypeVar("R", bound=AnyRequest)

End = Literal["finished", "failed", "cancelled"]
"""How a request ended, as its last `TimelineEvent` says: with an answer, with an error, or because nobody wants it."""

_TIMELINE_EVENTS = 200
_FURTHEST: tuple[RequestState, ...] = ("decode", "prefill", "queued", "paused")

clock = time.perf_counter


def cancelled_by_operator() -> ApiError:
    """A 403, which clients do not send again by themselves."""
    return ApiError(
        "The operator of this server ended the request.",
        type="permission_error",
        code="cancelled_by_operator",
        status=403,
    )


class Entry:
    """Lives on the event loop of the server. ``began`` is Unix time, all other times are of `clock`.

    A token costs `see`; what an operator reads is made when somebody asks.
    """

    def __init__(self, facts: Facts, priority: int, since: float) -> None:
        """``since``: when its body was there."""
        self.facts = facts
        self.priority = priority
        self.since = since
        self.began = time.time() - (clock() - since)
        self.started: float | None = None
        """When its prompt was being computed."""
        self.first: float | None = None
        """When its first token came."""
        self.ended: float | None = None
        self.end: End | None = None
        self.problem: str | None = None
        """The code or status of the error that ended it."""
        self.reasons: list[str] = []
        self.usage = UsageCounter(facts.choices)
        self.held = False
        self.cancelled = False
        self.timeline = [TimelineEvent(seconds=0.0, kind="received")]
        self.reader: asyncio.Task[Any] | None = None
        """The task that waits for what comes next."""
        self.close: Callable[[], Awaitable[None]] | None = None
        """Ends the work behind it."""
        self.watchers: list[DeltaRecord] = []
        self._record = DeltaRecord()
        self._deltas = 0
        self.silent = 0
        """Deltas that carry no token."""
        self._sequences: dict[str, SequenceView] = {}

    def named(self, request: R) -> R:
        """The request as the provider is to get it, by its handle."""
        return replace(request, service=replace(request.service, handle=self.facts.handle))

    async def running(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that `cancel` may end. Raises `ApiError` then."""
        self.reader = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            if self.interrupted():
                raise cancelled_by_operator() from None
            raise
        finally:
            self.reader = None

    async def cancel(self, close: Callable[[], Awaitable[None]] | None) -> None:
        """End the work, whose `close` this was. Who reads the answer is told so when it reads on."""
        self.cancelled = True
        if self.reader is not None:
            self.reader.cancel()
        elif close is not None:
            await close()

    def interrupted(self) -> bool:
        """Whether the reader was cancelled by `cancel` and by nothing else; to be called where it caught that."""
        task = asyncio.current_task()
        # As in asyncio.timeout: others may have cancelled the task too, and that must not be lost.
        return self.cancelled and task is not None and task.uncancel() == 0

    def see(self, delta: Delta) -> None:
        """Take the next delta of the answer."""
        record = self._record
        record.tail.append(delta)
        self._deltas += 1
        if not self._deltas & JOIN_EVERY - 1:
            record.join()
        if self.watchers:
            for watcher in self.watchers:
                watcher.tail.append(delta)
                if len(watcher.tail) >= JOIN_EVERY:
                    watcher.join()

    def begin_prefill(self, start: Start, now: float) -> None:
        """The first prompt is being computed."""
        self.started = now
        self.note("prefill", f"{start.prompt_tokens} tokens, {start.cached_tokens} of them cached", now)

    def begin_decode(self, now: float) -> None:
        """The first token is there."""
        self.first = now
        self.note("first_token", at=now)

    def count(self, usage: Usage) -> None:
        """What a request without choices cost."""
        self.usage = UsageCounter()
        self.usage.feed(Finish("stop", usage))

    def note(self, kind: str, note: str = "", at: float | None = None) -> None:
        """Add to the timeline, whose last event is the end; the latest events of a long one before that are dropped."""
        if kind == self.end or (self.end is None and len(self.timeline) < _TIMELINE_EVENTS):
            self.timeline.append(TimelineEvent(seconds=(at or clock()) - self.since, kind=kind, note=note))

    def finish(self, end: End, note: str) -> None:
        """The request leaves."""
        self.end = end
        self.ended = clock()
        self.note(end, note, self.ended)
        self._sequences = {}

    def forget(self) -> None:
        """Drop what it said, which those who watch it keep for themselves, and what made it: that holds a model."""
        self._record = DeltaRecord()
        self.close = None

    def watch(self) -> DeltaRecord:
        """What was said so far; what follows is added to it, until `unwatch`."""
        watcher = self._record.copy()
        self.watchers.append(watcher)
        return watcher

    def unwatch(self, watcher: DeltaRecord) -> None:
        """The reverse of `watch`."""
        if watcher in self.watchers:
            self.watchers.remove(watcher)

    def said(self) -> list[Delta]:
        """The answer so far."""
        return self._record.deltas()

    def compare(self, sequences: Sequence[SequenceView], *, restarted: bool) -> None:
        """Note what happened to its sequences since the last look."""
        if restarted:
            self.note("engine_restarted")
        for sequence in sequences:
            before = self._sequences.get(sequence.id)
            if before is not None and before.state == "decode" and sequence.state in ("queued", "prefill"):
                self.note("preempted", sequence.wait_reason or "")
        self._sequences = {sequence.id: sequence for sequence in sequences}

    @property
    def completion_tokens(self) -> int:
        """Tokens so far: of closed choices those of their usage, of others those that the engine told of at the last
        look, or the pieces that came."""
        closed = self.usage.closed.completion_tokens
        if not self.usage.open_choices:
            return closed
        generated = sum(sequence.generated for sequence in self._sequences.values())
        return max(closed + generated, self._deltas - self.silent)

    def view(self) -> RequestView:
        """As it stands."""
        facts, usage, tokens = self.facts, self.usage.closed, self.completion_tokens
        state, reason = self._state()
        seconds = (self.ended or clock()) - self.first if self.first is not None else 0.0
        return RequestView(
            id=facts.id,
            key=facts.key,
            surface=facts.surface,
            model=facts.model,
            state=state,
            wait_reason=reason,
            priority=self.priority,
            streamed=facts.streamed,
            choices=facts.choices,
            prompt_tokens=usage.prompt_tokens,
            prompt_done=self._prompt_done(usage.prompt_tokens),
            cached_tokens=usage.cached_tokens,
            completion_tokens=tokens,
            began=self.began,
            first_token_seconds=None if self.first is None else self.first - self.since,
            tokens_per_second=(tokens - 1) / seconds if tokens > 1 and seconds > 0 else None,
            held=self.held and self.end is None,
        )

    def detail(self) -> RequestDetail:
        """With what happened to it, and what it asked for."""
        parameters = {name: str(value) for name, value in self.facts.asked.items()}
        return RequestDetail(request=self.view(), timeline=list(self.timeline), parameters=parameters)

    def _prompt_done(self, tokens: int) -> int:
        if self.first is not None:
            return tokens
        return max((sequence.prompt_done for sequence in self._sequences.values()), default=0)

    def _state(self) -> tuple[RequestState, str | None]:
        """That of the sequence which is furthest, and why it waits."""
        if self.end is not None:
            return "ended", None
        for state in _FURTHEST:
            for sequence in self._sequences.values():
                if sequence.state == state:
                    return state, sequence.wait_reason
        if self.held:
            return "paused", "held"
        if self.first is not None:
            return "decode", None
        return ("queued" if self.started is None else "prefill"), None
