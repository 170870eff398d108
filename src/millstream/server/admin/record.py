"""What an answer has said so far, for those who look at it later: its deltas, joined where a choice goes on with the
same, and bounded in size.

Deltas are kept as they come and joined many at a time, so that a token costs one `list.append`. A fold of the joined
deltas is that of the deltas themselves (partition invariance; choices are independent of each other); token ids and log
probabilities are left out.
"""

from __future__ import annotations

from millstream.ir.deltas import Content, Delta, Error, Finish, Reasoning, Refusal, Start, ToolCallArgs, ToolCallStart

RECORD_CHARACTERS = 256 * 1024
"""Characters that a record keeps of an answer."""

JOIN_EVERY = 128
"""Deltas after which whoever adds them calls `DeltaRecord.join`; a power of two."""

_DELTA_CHARACTERS = 64
"""What a delta counts beside its text."""

_Key = tuple[type[Content] | type[Reasoning] | type[ToolCallArgs], int, int]
"""Kind, choice and call of a piece of text: what follows with the same key is joined to it."""


class DeltaRecord:
    """The deltas of one answer. ``tail`` takes new ones; see `JOIN_EVERY`.

    When there is too much, the oldest text goes (``lost``); calls keep their beginnings, so that what follows has its
    place. If that is not enough (thousands of calls), only the costs and the ends are kept from then on.
    """

    def __init__(self, limit: int = RECORD_CHARACTERS) -> None:
        self.tail: list[Delta] = []
        self.lost = False
        self._limit = limit
        self._joined: list[Delta] = []
        self._last: dict[int, int] = {}
        """By choice, where its last delta is in ``_joined``."""
        self._size = 0
        self._ends_only = False

    def join(self) -> None:
        """Join what came since the last time, and keep to the limit."""
        tail = self.tail
        choices = {delta.choice if type(delta) is Content else None for delta in tail}
        if len(choices) == 1 and (choice := choices.pop()) is not None:  # nearly always
            tail[:] = [Content("".join([delta.text for delta in tail if type(delta) is Content]), choice)]
        runs: dict[int, tuple[_Key, list[str]]] = {}
        for delta in tail:
            key = _key(delta)
            if key is None:
                self._add_runs(runs)
                self._add(_bare(delta))
                continue
            run = runs.get(key[1])
            if run is None or run[0] != key:
                if run is not None:
                    self._add(_piece(run[0], "".join(run[1])))
                run = runs[key[1]] = (key, [])
            run[1].append(_said(delta))
        tail.clear()
        self._add_runs(runs)
        if self._size > self._limit:
            self._forget()

    def deltas(self) -> list[Delta]:
        """All that is kept, in order."""
        self.join()
        return list(self._joined)

    def take(self) -> list[Delta]:
        """All that is kept, which is then forgotten: the record goes on with what comes."""
        taken = self.deltas()
        self._joined, self._last, self._size = [], {}, 0
        return taken

    def copy(self) -> DeltaRecord:
        """A record of the same, to go on by itself."""
        twin = DeltaRecord(self._limit)
        twin._joined, twin._last, twin._size = self.deltas(), dict(self._last), self._size
        twin.lost, twin._ends_only = self.lost, self._ends_only
        return twin

    def _add_runs(self, runs: dict[int, tuple[_Key, list[str]]]) -> None:
        for key, texts in runs.values():
            self._add(_piece(key, "".join(texts)))
        runs.clear()

    def _add(self, delta: Delta) -> None:
        if self._ends_only and not isinstance(delta, Start | Finish | Error):
            return
        key = _key(delta)
        if key is not None:
            at = self._last.get(key[1])
            if at is not None and _key(self._joined[at]) == key:
                self._joined[at] = _piece(key, _said(self._joined[at]) + _said(delta))
                self._size += len(_said(delta))
                return
        if not isinstance(delta, Start | Error):
            self._last[delta.choice] = len(self._joined)
        self._joined.append(delta)
        self._size += _size(delta)

    def _forget(self) -> None:
        """Drop the oldest text until half of the limit is free: so it is not done for every few tokens."""
        self.lost = True
        kept, self._joined, self._last, self._size = self._joined, [], {}, 0
        surplus = sum(map(_size, kept)) - self._limit // 2
        for delta in kept:
            key = _key(delta)
            if key is not None and surplus > 0:
                text = _said(delta)
                if surplus >= len(text):
                    surplus -= _size(delta)
                    continue
                delta = _piece(key, text[surplus:])
                surplus = 0
            self._add(delta)
        if self._size > self._limit:
            self._ends_only = True
            kept, self._joined, self._last, self._size = self._joined, [], {}, 0
            for delta in kept:
                self._add(delta)


def _key(delta: Delta) -> _Key | None:
    if isinstance(delta, Content | Reasoning):
        return type(delta), delta.choice, 0
    return (ToolCallArgs, delta.choice, delta.index) if isinstance(delta, ToolCallArgs) else None


def _said(delta: Delta) -> str:
    if isinstance(delta, Content | Reasoning):
        return delta.text
    return delta.fragment if isinstance(delta, ToolCallArgs) else ""


def _piece(key: _Key, text: str) -> Delta:
    kind, choice, index = key
    if kind is ToolCallArgs:
        return ToolCallArgs(index, text, choice)
    return Content(text, choice) if kind is Content else Reasoning(text, choice)


def _bare(delta: Delta) -> Delta:
    if isinstance(delta, ToolCallStart):
        return ToolCallStart(delta.index, delta.id, delta.name, delta.choice)
    if isinstance(delta, Finish):
        return Finish(delta.reason, delta.usage, delta.choice, stop_sequence=delta.stop_sequence)
    return delta


def _size(delta: Delta) -> int:
    size = _DELTA_CHARACTERS + len(_said(delta))
    if isinstance(delta, ToolCallStart):
        return size + len(delta.id) + len(delta.name)
    return size + len(delta.text) if isinstance(delta, Refusal) else size
