"""What the host asks of whoever turns a model file into an engine and a provider."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple, Protocol

from millstream.engine.protocol import EngineInfo, EngineStats
from millstream.ir.provider import EmbeddingProvider, PromptTools, Provider


class ModelSource(NamedTuple):
    """A model file, and what clients call it."""

    name: str
    path: Path


class ModelLoadError(Exception):
    """A model cannot be loaded; the message is for the operator."""


class ModelProvider(Provider, EmbeddingProvider, PromptTools, Protocol):
    """What answers the requests of one model."""


class HostedEngine(Protocol):
    """The engine process of one model. ``lost`` resolves to the reason when there will be none any more."""

    lost: asyncio.Future[str]

    @property
    def info(self) -> EngineInfo: ...

    @property
    def pid(self) -> int: ...

    async def stats(self) -> EngineStats: ...

    async def close(self, reason: str = ...) -> None: ...


class OpenModel(NamedTuple):
    """A model that is loaded."""

    engine: HostedEngine
    provider: ModelProvider


class Opener(Protocol):
    """Loads model files. ``free_bytes``: memory that the model may take."""

    def check(self, source: ModelSource, free_bytes: int) -> None:
        """Look at the file without loading it; it blocks. Raises `ModelLoadError` if it could not be loaded now."""
        ...

    async def open(self, source: ModelSource, free_bytes: int) -> OpenModel:
        """Raises `ModelLoadError`. Cancelled, it leaves no process behind."""
        ...
