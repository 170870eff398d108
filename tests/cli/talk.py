"""A provider that plays answers, and a session around it in place of an engine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from millstream.cli.opening import LocalSession
from millstream.cli.options import EngineOptions
from millstream.ir.deltas import Content, Delta, Finish, Usage
from millstream.ir.errors import ApiError
from millstream.ir.provider import ModelCard
from millstream.ir.request import Request

CTRL_C = "ctrl-c"
"""In place of a delta: the user presses Ctrl-C, and nothing more would come."""

Script = list[Delta | str] | ApiError


def says(*pieces: str) -> Script:
    """An answer in these pieces."""
    usage = Usage(prompt_tokens=7, completion_tokens=len(pieces))
    return [*(Content(piece) for piece in pieces), Finish("stop", usage)]


class PlayedStream:
    def __init__(self, script: list[Delta | str]) -> None:
        self._script = iter(script)
        self.closed = False

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        item = next(self._script, None)
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, str):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        assert not isinstance(item, str)
        return item

    async def aclose(self) -> None:
        self.closed = True


class PlayedProvider:
    """Answers requests with the scripts in turn; keeps the requests and the streams."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self.requests: list[Any] = []
        self.streams: list[PlayedStream] = []

    def models(self) -> list[ModelCard]:
        return [ModelCard(id="played", created=0, context_length=4096)]

    async def stream(self, request: Request) -> PlayedStream:
        self.requests.append(request)
        script = self._scripts.pop(0)
        if isinstance(script, ApiError):
            raise script
        self.streams.append(PlayedStream(script))
        return self.streams[-1]

    @asynccontextmanager
    async def opened(self, path: Path, options: EngineOptions) -> AsyncIterator[LocalSession]:
        """In place of `open_local`."""
        yield LocalSession("played", self, None)  # type: ignore[arg-type]
