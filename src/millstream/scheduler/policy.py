"""Who is served next. Pure: sequences in, an order out; seconds are passed in and never read from a clock.

Three rules, the first that tells two sequences apart decides:

1. **Class.** A lower ``priority`` goes first. Every `Fairness.ageing_seconds` that a sequence waits lift it by one
   class, up to the best class that is present and not beyond: so nobody starves, and a long queue of one client does
   not outrank the next request of another.
2. **Fair shares.** Inside a class the tenant that was served least goes first, by the virtual token counter of Sheng et
   al., "Fairness in Serving Large Language Models" (OSDI 2024): a tenant pays 1 per prompt token that is computed for
   it and 2 per token that it is given, and one that comes back to the queue starts at the least of those who wait, so
   that idle time is not saved up. Here it starts `Fairness.head_start` tokens before them, unless it was ahead
   already: an interactive prompt overtakes long ones at once, and yet no tenant is ever ahead of another that waits by
   more than that.
3. **Inside a tenant** the prompt with the fewest tokens left gets three quarters of the work, the oldest one quarter:
   short prompts are not stuck behind long ones, and long ones always advance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

PROMPT_WEIGHT = 1
OUTPUT_WEIGHT = 2

QUANTUM = 32
"""What one turn gives at most, in units of `millstream.scheduler.pace`: as many tokens, fewer at a great context."""

SHORTEST_SHARE = 3
"""Inside a tenant: units for the shortest prompt to one for the oldest."""


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """``ageing_seconds``: a sequence that waits rises by one class in this time. ``patience_seconds``: sequences that
    find blocks may pass one that does not, but not for longer than this. ``head_start``: prompt tokens."""

    ageing_seconds: float = 10.0
    patience_seconds: float = 10.0
    head_start: int = 1024


class Waiting(Protocol):
    """What the rules look at. ``order`` counts arrivals, ``since`` is when the sequence arrived, ``pending`` the tokens
    that it wants computed."""

    @property
    def tenant(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def order(self) -> int: ...
    @property
    def since(self) -> float: ...
    @property
    def pending(self) -> int: ...


W = TypeVar("W", bound=Waiting)


class Shares:
    """What each tenant was served, in weighted tokens, since the last moment at which nobody waited."""

    def __init__(self, head_start: int) -> None:
        self._head_start = head_start
        self._served: dict[str, int] = {}
        self._ahead: dict[str, float] = {}

    def served(self, tenant: str) -> int:
        return self._served.get(tenant, 0)

    def join(self, tenant: str, waiting: Iterable[str]) -> None:
        """A tenant has something to wait for; ``waiting``: tenants that wait already."""
        others = set(waiting)
        if not others:
            self._served.clear()  # nobody is owed anything
            self._ahead.clear()
        elif tenant not in others:
            least = min(map(self.served, others)) - self._head_start
            self._served[tenant] = max(self._served.get(tenant, least), least)

    def charge(self, tenant: str, *, prompt: int = 0, output: int = 0) -> None:
        """Tokens were computed for a tenant, or given to it."""
        self._served[tenant] = self.served(tenant) + PROMPT_WEIGHT * prompt + OUTPUT_WEIGHT * output

    def oldest_due(self, tenant: str) -> bool:
        """Whether, of a tenant's prompts, it is the oldest one's turn."""
        return self._ahead.get(tenant, 0) >= SHORTEST_SHARE * QUANTUM

    def overtaken(self, tenant: str, units: float) -> None:
        """A tenant's oldest prompt was passed by ``units`` of shorter ones, or (negative) had so many itself."""
        weighted = units if units > 0 else SHORTEST_SHARE * units
        self._ahead[tenant] = max(0, self._ahead.get(tenant, 0) + weighted)


def priority_class(sequence: Waiting, now: float, best: int, ageing_seconds: float) -> int:
    """The class of a sequence that waits; ``best``: the best ``priority`` of any that is present."""
    return max(best, sequence.priority - int((now - sequence.since) / ageing_seconds))


class Turns(Generic[W]):
    """The turns of one step among sequences that want prompt tokens computed.

    Take `next`, then say what became of it: `grant` or `drop`. What was granted counts at once in the order that
    follows; to charge what has run is the caller's business.
    """

    def __init__(self, sequences: Iterable[W], shares: Shares, now: float, *, best: int, ageing_seconds: float) -> None:
        self._shares = shares
        self._groups: dict[tuple[int, str], list[W]] = {}
        self._served: dict[str, int] = {}
        for sequence in sequences:
            key = (priority_class(sequence, now, best, ageing_seconds), sequence.tenant)
            self._groups.setdefault(key, []).append(sequence)
            self._served.setdefault(sequence.tenant, shares.served(sequence.tenant))
        for group in self._groups.values():
            group.sort(key=_order)
        self._turn: tuple[tuple[int, str], W] | None = None

    def next(self) -> W | None:
        """Whose turn it is; None if nobody is left."""
        if not self._groups:
            return None
        key = min(self._groups, key=self._precedence)
        group = self._groups[key]
        sequence = group[0] if self._shares.oldest_due(key[1]) else min(group, key=_length)
        self._turn = (key, sequence)
        return sequence

    @property
    def level(self) -> int:
        """The class of whose turn it is."""
        assert self._turn is not None
        return self._turn[0][0]

    @property
    def alone(self) -> bool:
        """Whether nobody else is left, so that there is nothing to share."""
        return len(self._groups) == 1 and all(len(group) == 1 for group in self._groups.values())

    def grant(self, tokens: int, units: float, *, done: bool) -> None:
        """Whose turn it is gets so many, which cost so much; ``done``: it wants no more."""
        assert self._turn is not None
        key, sequence = self._turn
        self._served[sequence.tenant] += PROMPT_WEIGHT * tokens
        if len(self._groups[key]) > 1:
            self._shares.overtaken(sequence.tenant, -units if sequence is self._groups[key][0] else units)
        if done:
            self.drop()

    def drop(self) -> None:
        """Whose turn it is gets nothing (more) in this step."""
        assert self._turn is not None
        key, sequence = self._turn
        group = self._groups[key]
        group.remove(sequence)
        if not group:
            del self._groups[key]

    def left(self) -> list[W]:
        """Those that had no turn or want more."""
        return [sequence for group in self._groups.values() for sequence in group]

    def _precedence(self, key: tuple[int, str]) -> tuple[int, int, int]:
        level, tenant = key
        return (level, self._served[tenant], self._groups[key][0].order)


def _order(sequence: Waiting) -> int:
    return sequence.order


def _length(sequence: Waiting) -> tuple[int, int]:
    return (sequence.pending, sequence.order)
