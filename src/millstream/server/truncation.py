"""``truncation: auto``: leave out the oldest turns until the conversation fits the context.

Whether it fits, the provider says: it refuses what does not before anything is queued. Fewer messages never need more
room, so the smallest cut is found by bisection, in a few tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from msgspec.structs import replace

from millstream.ir.errors import ApiError
from millstream.ir.provider import DeltaStream, Provider
from millstream.ir.request import ChatRequest, Message

_STAYS = ("system", "developer")


async def stream_truncated(provider: Provider, request: ChatRequest) -> DeltaStream:
    """A stream of the request, or of it without its oldest turns.

    Raises:
        ApiError: what the provider refuses; ``context_length_exceeded`` if even the last turn does not fit.
    """
    try:
        return await provider.stream(request)
    except ApiError as error:
        if error.code != "context_length_exceeded":
            raise
        refused = error
    cuts = shorter(request.messages)
    low, high = 0, len(cuts)  # cuts before `low` do not fit, those from `high` on do
    while low < high:
        middle = (low + high) // 2
        try:
            stream = await provider.stream(replace(request, messages=cuts[middle]))
        except ApiError as error:
            if error.code != "context_length_exceeded":
                raise
            refused, low = error, middle + 1
            continue
        if middle == low:
            return stream
        await stream.aclose()
        high = middle
    if low == len(cuts):
        raise refused
    return await provider.stream(replace(request, messages=cuts[low]))


def shorter(messages: Sequence[Message]) -> Sequence[tuple[Message, ...]]:
    """The conversation with more and more of its oldest messages left out; each is made when it is asked for.

    System and developer messages stay, and the last user message. A tool's result goes with the call that it answers.
    """
    last_user = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    units = _units(messages, last_user)
    ends = []
    for number in range(len(units)):
        # An answer without its question helps nobody: between turns, cut at user messages only.
        following = units[number + 1][0] if number + 1 < len(units) else None
        if following is None or following >= last_user or messages[following].role == "user":
            ends.append(number + 1)
    return _Cuts(messages, units, ends)


class _Cuts(Sequence[tuple[Message, ...]]):
    """Cut k leaves out the first ``ends[k]`` of ``units``."""

    def __init__(self, messages: Sequence[Message], units: list[list[int]], ends: list[int]) -> None:
        self._messages = messages
        self._units = units
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> tuple[Message, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Message, ...]]: ...

    def __getitem__(self, index: int | slice) -> tuple[Message, ...] | list[tuple[Message, ...]]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        left_out = {at for unit in self._units[: self._ends[index]] for at in unit}
        return tuple(message for at, message in enumerate(self._messages) if at not in left_out)


def _units(messages: Sequence[Message], last_user: int) -> list[list[int]]:
    """Positions that can only go together, oldest first. Of what follows the last user message, the newest stays."""
    units: list[list[int]] = []
    for at, message in enumerate(messages):
        if message.role in _STAYS or at == last_user:
            continue
        if message.role == "tool" and units:
            units[-1].append(at)
        else:
            units.append([at])
    if units and units[-1][-1] > last_user:
        units.pop()
    return units
