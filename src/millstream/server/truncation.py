"""``truncation: auto``: leave out the oldest turns until the conversation fits the context.

Fewer messages never need more room, so one cut is the smallest that fits. It is found by interpolation: tokens grow
about as characters do, so the count of one conversation tells nearly where the right one is. To render and count one is
the cost of a try, and a few do, however many messages there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from msgspec.structs import replace

from millstream.ir.errors import ApiError, ContextLengthExceeded
from millstream.ir.provider import DeltaStream, PromptTools, Provider
from millstream.ir.request import ChatRequest, Message

_STAYS = ("system", "developer")

_TOO_LONG = ("context_length_exceeded", "text_too_long")

_CHARACTERS_PER_TOKEN = 4
"""A guess, for conversations that are refused uncounted."""

_MARKUP = 16
"""Characters that a template writes around a message; a guess too."""

_STEADY = 3
"""Of so many tries, one halves what is left: that ends the search also where tokens and characters have nothing to do
with each other."""


async def stream_truncated(provider: Provider, request: ChatRequest) -> DeltaStream:
    """A stream of the request, or of it without its oldest turns.

    Raises:
        ApiError: what the provider refuses; ``context_length_exceeded`` if even the last turn does not fit.
    """
    try:
        return await provider.stream(request)
    except ApiError as error:
        if error.code not in _TOO_LONG:
            raise
        refused = error
    cuts = shorter(request.messages)
    best = await _Search(provider, request, cuts, refused).smallest()
    if best == len(cuts):
        best -= 1  # to be told what is wrong with the shortest
        if best < 0:
            raise refused
    return await provider.stream(replace(request, messages=cuts[best]))


class _Try(NamedTuple):
    """A conversation that was counted: its characters and tokens."""

    cut: int
    characters: int
    tokens: int


class _Search:
    """Looks for the smallest cut that fits; cut -1 is the whole conversation, which was ``refused``."""

    def __init__(self, provider: Provider, request: ChatRequest, cuts: Cuts, refused: ApiError) -> None:
        self._provider = provider
        self._request = request
        self._cuts = cuts
        cards = provider.models()
        self._context = next((card for card in cards if card.id == request.model), cards[0]).context_length
        self._over = self._refusal(-1, _characters(request.messages), refused)

    async def smallest(self) -> int:
        """The number of the cut; that of no cut if even the shortest conversation does not fit."""
        over, fit = self._over, _Try(len(self._cuts), 0, 0)
        tries = 0
        while fit.cut - over.cut > 1:
            tries += 1
            guess = (over.cut + fit.cut) // 2 if tries % _STEADY == 0 else self._guess(over, fit)
            result = await self._count(max(over.cut + 1, min(guess, fit.cut - 1)))
            if result.tokens < self._context:
                fit = result
            else:
                over = result
        return fit.cut

    def _guess(self, over: _Try, fit: _Try) -> int:
        """The cut that fits if the tokens between two conversations grow as their characters do."""
        share = (self._context - 1 - fit.tokens) / max(over.tokens - fit.tokens, 1)
        wanted = fit.characters + (over.characters - fit.characters) * share
        low, high = over.cut + 1, fit.cut
        while low < high:
            middle = (low + high) // 2
            if self._cuts.characters[middle] <= wanted:
                high = middle
            else:
                low = middle + 1
        return low

    async def _count(self, cut: int) -> _Try:
        characters = self._cuts.characters[cut]
        request = replace(self._request, messages=self._cuts[cut])
        try:
            if isinstance(self._provider, PromptTools):
                tokens = len(await self._provider.prompt_tokens(request))
            else:
                await (await self._provider.stream(request)).aclose()
                tokens = 0  # it fits; how well is not told
        except ApiError as error:
            if error.code not in _TOO_LONG:
                raise
            return self._refusal(cut, characters, error)
        return _Try(cut, characters, tokens)

    def _refusal(self, cut: int, characters: int, error: ApiError) -> _Try:
        """What is known of a conversation that was refused: at least that it does not fit."""
        told = error.prompt_tokens if isinstance(error, ContextLengthExceeded) else 0
        counted = isinstance(error, ContextLengthExceeded) and not error.at_least
        return _Try(cut, characters, max(told, self._context, 0 if counted else characters // _CHARACTERS_PER_TOKEN))


def _characters(messages: Iterable[Message]) -> int:
    return sum(
        _MARKUP
        + len(message.content)
        + len(message.reasoning or "")
        + sum(len(call.name) + len(call.arguments) + _MARKUP for call in message.tool_calls)
        for message in messages
    )


def shorter(messages: Sequence[Message]) -> Cuts:
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
    return Cuts(messages, units, ends)


class Cuts(Sequence[tuple[Message, ...]]):
    """Cut k leaves out the first ``ends[k]`` of ``units``; ``characters[k]`` is how many it keeps."""

    def __init__(self, messages: Sequence[Message], units: list[list[int]], ends: list[int]) -> None:
        self._messages = messages
        self._units = units
        self._ends = ends
        lost = [0, *accumulate(_characters(messages[at] for at in unit) for unit in units)]
        total = _characters(messages)
        self.characters = [total - lost[end] for end in ends]

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
