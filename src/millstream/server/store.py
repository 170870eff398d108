"""What the server asks of a store of answers.

A tenant sees its own answers only. A store is bounded in entries, bytes and age; what was used least recently goes
first. To read an answer is to use it, and to go on with a conversation is to use all of it; to list is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

Item = dict[str, Any]
Kind = Literal["response", "chat.completion"]


class Listing(msgspec.Struct, frozen=True):
    """What lists of answers choose by. The metadata is also a member of the body."""

    model: str
    metadata: Mapping[str, str]


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``body``: the JSON object that the client gets for the id. ``input`` and ``output``: its items, each with an id
    (none for kinds that have no items). ``previous``: the answer that it continues. ``listing``: None for a kind that
    is never listed."""

    id: str
    tenant: str
    kind: Kind
    body: bytes
    previous: str | None = None
    input: tuple[Item, ...] = ()
    output: tuple[Item, ...] = ()
    listing: Listing | None = None


class PageQuery(msgspec.Struct, frozen=True):
    """A part of a list: ``limit`` items at most, those that come after the item with the id ``after``."""

    limit: int
    after: str | None = None
    descending: bool = False


class ItemPage(msgspec.Struct, frozen=True):
    """Some items of a list, and whether there are more in the same direction."""

    items: list[Item]
    more: bool


class AnswerPage(msgspec.Struct, frozen=True):
    """Ids and bodies of some answers, and whether there are more in the same direction."""

    answers: list[tuple[str, bytes]]
    more: bool


class AnswerStore(Protocol):
    """Where answers are kept. Every method is for one tenant."""

    async def save(self, answer: StoredAnswer) -> bool:
        """Keep an answer; False if it is larger than the whole store may be."""
        ...

    async def load(self, tenant: str, kind: Kind, answer_id: str) -> bytes | None:
        """The body of an answer."""
        ...

    async def delete(self, tenant: str, kind: Kind, answer_id: str) -> bool:
        """Forget an answer; False if there is none."""
        ...

    async def page(
        self, tenant: str, kind: Kind, query: PageQuery, *, model: str | None = None, metadata: Mapping[str, str]
    ) -> AnswerPage:
        """Listed answers in order of their creation, only those of ``model`` and with all pairs of ``metadata``.

        Raises:
            ApiError: 400, there is no listed answer ``query.after``.
        """
        ...

    async def relabel(self, tenant: str, kind: Kind, answer_id: str, metadata: Mapping[str, str]) -> bytes | None:
        """Give a listed answer other metadata; its body as it is then, None if there is none."""
        ...

    async def history(self, tenant: str, answer_id: str) -> list[Item] | str:
        """Items of a response and of those that it continues, oldest first; or the id that is not there.

        Raises:
            ApiError: 400, they are more than a request may begin with.
        """
        ...

    async def find_items(self, tenant: str, item_ids: Sequence[str]) -> dict[str, Item]:
        """Items of any stored response by their ids."""
        ...

    async def input_items(self, tenant: str, kind: Kind, answer_id: str, query: PageQuery) -> ItemPage | None:
        """A page of an answer's own input; None if there is no such answer.

        Raises:
            ApiError: 400, ``query.after`` is none of its items.
        """
        ...

    async def close(self) -> None: ...


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds``: how long an answer is kept after its last use. ``chain``: how many answers one conversation may
    have, ``history`` how many bytes of them a new one may begin with. ``page``: bytes of bodies after which a page of a
    list ends, before its limit."""

    entries: int = 20_000
    bytes: int = 512 * 1024 * 1024
    seconds: float = 30 * 24 * 3600.0
    chain: int = 1_000
    history: int = 64 * 1024 * 1024
    page: int = 32 * 1024 * 1024
