"""What a restart of the engine needs to know: every open request, its tokens so far, and who may have caused a crash.

The next token of a request is a function of its prompt, its output and its parameters, so a request that is submitted
again with its output so far goes on as if nothing had happened. Tokens that were sampled but did not arrive are sampled
again.

A request that was in the batch of two crashes is suspected. Suspects are tried one by one while the rest waits: one
that gets `CLEARING_TOKENS` beyond the place where it was at its last crash is cleared and goes on, one that ends the
engine a third time is given up. (What a request does at a place depends on nothing but the request, so a crash that it
causes is met again at the same place; the same number of tokens clears it between two crashes.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from millstream.engine.protocol import (
    PauseReason,
    SequenceView,
    TokenDelta,
    TokenRequest,
    WaitReason,
    told_pause,
)

SUSPECT_CRASHES = 2
CLEARING_TOKENS = 16


class Entry:
    """One open request. ``output`` is what its reader was given, at most ``request.max_tokens`` tokens."""

    __slots__ = (
        "accepted",
        "cached_tokens",
        "crash_length",
        "crashes",
        "output",
        "pauses",
        "request",
        "scored",
        "submitted",
    )

    def __init__(self, request: TokenRequest) -> None:
        self.request = request
        self.output = list(request.output)
        self.scored = request.scored
        """Log probabilities of its prompt that its reader was given."""
        self.cached_tokens: int | None = None
        """Told to the reader when prefill began; None before."""
        self.submitted = False
        """Whether the present engine process was given the request; ``accepted``: whether it said that it took it."""
        self.accepted = False
        self.pauses: set[PauseReason] = set()
        """Why it rests."""
        self.crashes = 0
        """Crashed batches that it was in, since it was last cleared; ``crash_length``: its output at the last."""
        self.crash_length = 0

    @property
    def suspected(self) -> bool:
        return self.crashes >= SUSPECT_CRASHES

    def view(self, *, up: bool) -> SequenceView:
        """What is known of it without the engine; ``up``: there is an engine process, which has not told of it."""
        reason: WaitReason | None = None
        if self.pauses:
            reason = told_pause(self.pauses)
        elif not self.submitted:
            reason = "suspected" if up else "engine_restart"
        return SequenceView(self.request.id, "paused" if self.pauses else "queued", reason, generated=len(self.output))

    def resumption(self) -> TokenRequest:
        """The request, to go on after its output."""
        return msgspec.structs.replace(self.request, output=list(self.output), scored=self.scored)


class Journal:
    """Open requests in order of arrival."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._batch: list[str] = []
        self._working: set[str] = set()
        self._kept_back: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._entries

    @property
    def busy(self) -> bool:
        """Whether the engine has something to do."""
        return bool(self._working)

    @property
    def begun(self) -> int:
        """Requests whose readers were told that prefill began."""
        return sum(entry.cached_tokens is not None for entry in self._entries.values())

    @property
    def kept_back(self) -> int:
        """Requests that the engine does not know of, but would be given if it were not for suspects."""
        return len(self._kept_back)

    def waits(self, *, up: bool) -> Counter[str]:
        """Requests that the engine does not know of, by the reason."""
        views = (entry.view(up=up) for entry in self._entries.values() if not entry.submitted)
        return Counter(view.wait_reason for view in views if view.wait_reason is not None)

    def views(self, told: Iterable[SequenceView], *, up: bool) -> list[SequenceView]:
        """Every open request in order of arrival: as the engine told, or as the journal knows."""
        by_id = {view.id: view for view in told}
        return [by_id.get(name) or entry.view(up=up) for name, entry in self._entries.items()]

    def add(self, request: TokenRequest) -> None:
        """A new request; `due` will give it out."""
        self._place(Entry(request))

    def remove(self, request_id: str) -> bool:
        """Forget a request; whether the engine knows of it."""
        entry = self._entries.pop(request_id, None)
        self._working.discard(request_id)
        self._kept_back.discard(request_id)
        return entry is not None and entry.submitted

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._working.clear()
        self._kept_back.clear()
        self._batch = []

    def pause(self, request_id: str, reason: PauseReason) -> Literal["pause", "abort"] | None:
        """A request rests; returns what to tell the engine. A suspect is taken from it, so that others need not wait
        for the end of its trial."""
        entry = self._entries[request_id]
        known = entry.submitted
        entry.pauses.add(reason)
        if entry.suspected:
            entry.submitted = entry.accepted = False
        self._place(entry)
        if not known:
            return None
        return "pause" if entry.submitted else "abort"

    def resume(self, request_id: str, reason: PauseReason) -> bool:
        """A request need not rest for this reason; whether the engine knows of it, else `due` will give it out."""
        entry = self._entries[request_id]
        entry.pauses.discard(reason)
        self._place(entry)
        return entry.submitted

    def reprioritise(self, request_id: str, priority: int) -> bool:
        """Change a request's class; whether the engine knows of it."""
        entry = self._entries[request_id]
        entry.request = msgspec.structs.replace(entry.request, priority=priority)
        return entry.submitted

    def due(self) -> Iterator[TokenRequest]:
        """What the engine is to be given now; each is taken as submitted when it is yielded."""
        entries = [entry for entry in self._entries.values() if not entry.pauses]
        suspects = [entry for entry in entries if entry.suspected]
        if any(entry.submitted for entry in suspects):
            return
        for entry in suspects[:1] or entries:
            if not entry.submitted:
                entry.submitted = True
                self._place(entry)
                yield entry.resumption()

    def _place(self, entry: Entry) -> None:
        """Put an entry where its flags say."""
        name = entry.request.id
        self._entries[name] = entry
        self._working.discard(name)
        self._kept_back.discard(name)
        if not entry.pauses:
            (self._working if entry.submitted else self._kept_back).add(name)

    def accepted(self, request_id: str) -> None:
        """The engine took a request."""
        if entry := self._entries.get(request_id):
            entry.accepted = True

    def batch(self, request_ids: list[str]) -> None:
        """The sequences of the step that begins."""
        self._batch = request_ids

    def record(self, delta: TokenDelta) -> TokenDelta | None:
        """Note what the engine reports; returns what the reader is to see of it, None for nothing."""
        entry = self._entries.get(delta.id)
        if entry is None:  # its reader has left
            return None
        resumed = entry.cached_tokens is not None
        if resumed and not delta.tokens and not delta.prompt_logprobs and delta.finish is None:
            return None
        entry.output += delta.tokens
        entry.scored += len(delta.prompt_logprobs)
        if delta.finish is not None:
            self.remove(delta.id)
        elif entry.crashes and len(entry.output) >= entry.crash_length + CLEARING_TOKENS:
            entry.crashes = 0
        if entry.cached_tokens is None:
            entry.cached_tokens = delta.cached_tokens
        elif (
            entry.cached_tokens != delta.cached_tokens
        ):  # what a restarted engine takes from its cache is its own affair
            return msgspec.structs.replace(delta, cached_tokens=entry.cached_tokens)
        return delta

    def crashed(self) -> list[str]:
        """The engine process died. Blames whoever was being run or prepared; returns the requests to be given up, which
        are forgotten. What is left is due again."""
        running = set(self._batch)
        blamed = [e for e in self._entries.values() if e.submitted and (e.request.id in running or not e.accepted)]
        self._blame([entry for entry in blamed if entry.suspected] or blamed)
        for entry in self._entries.values():
            entry.submitted = entry.accepted = False
            self._place(entry)
        self._batch = []
        given_up = [name for name, entry in self._entries.items() if entry.crashes > SUSPECT_CRASHES]
        for name in given_up:
            self.remove(name)
        return given_up

    @staticmethod
    def _blame(entries: Iterable[Entry]) -> None:
        for entry in entries:
            entry.crashes += 1
            entry.crash_length = len(entry.output)
