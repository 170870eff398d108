"""The engines behind an app: one, or those of several models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

from millstream.engine.protocol import EngineInfo, EngineStats
from millstream.ir.provider import Provider

EngineHealth = Callable[[], Awaitable[EngineStats]]
"""A round trip to an engine; raises `ApiError` if it is down."""


class ServedEngine(Protocol):
    """One engine. ``info`` None, ``pid`` 0: nothing is known of it (any more). ``leaving``: it takes no new requests,
    and ends after the open ones."""

    @property
    def model(self) -> str: ...

    @property
    def leaving(self) -> bool: ...

    @property
    def info(self) -> EngineInfo | None: ...

    @property
    def pid(self) -> int: ...

    async def stats(self) -> EngineStats:
        """A round trip to it. Raises `ApiError` if it is down."""
        ...


@runtime_checkable
class Engines(Protocol):
    """Whoever has engines, which may come and go."""

    def engines(self) -> Sequence[ServedEngine]:
        """The one of the default model first."""
        ...


class OneEngine:
    """The only engine of a provider with one model, as its stats."""

    def __init__(self, provider: Provider, health: EngineHealth) -> None:
        self._provider = provider
        self._health = health

    def engines(self) -> Sequence[ServedEngine]:
        return [self]

    @property
    def model(self) -> str:
        return next((card.id for card in self._provider.models()), "")

    @property
    def leaving(self) -> bool:
        return False

    @property
    def info(self) -> None:
        return None

    @property
    def pid(self) -> int:
        return 0

    async def stats(self) -> EngineStats:
        return await self._health()
