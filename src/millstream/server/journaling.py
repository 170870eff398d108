"""The ASGI layer that records requests: it sees the body, the status and the end, and the engine's side reads along."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.journal.recording import Recording, recording
from millstream.journal.records import Record
from millstream.journal.writer import Digests, Journal, Maker
from millstream.surfaces.wire import request_id

SURFACES = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "/v1/embeddings": "embeddings",
}
"""Paths that are recorded, and what they speak. Others neither generate nor concern a model."""


class Journalled:
    """Records every request to the paths of `SURFACES`. Headers are not recorded: they hold keys."""

    def __init__(self, app: ASGIApp, *, journal: Journal) -> None:
        self._app = app
        self._journal = journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        surface = SURFACES.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if surface is None:
            await self._app(scope, receive, send)
            return
        current = Recording()
        began, clock = time.time(), time.perf_counter()
        status, whole = 0, False

        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                current.see_body(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal status, whole
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
            elif not message.get("more_body", False):
                whole = True

        token = recording.set(current)
        try:
            await self._app(scope, receiving, sending)
        finally:
            recording.reset(token)
            make = _maker(current, surface, scope["path"], began, clock, status=status, whole=whole)
            self._journal.put(make, weight=current.weight)


def _maker(
    current: Recording, surface: str, path: str, began: float, clock: float, *, status: int, whole: bool
) -> Maker:
    name, seconds = request_id.get() or "", time.perf_counter() - clock

    def make(digests: Digests) -> Record:
        source = current.source
        return Record(
            id=name,
            time=began,
            seconds=seconds,
            surface=surface,
            path=path,
            status=status,
            whole=whole,
            body=current.body,
            body_bytes=current.body_bytes,
            model=digests.facts(source.name, source.path) if source is not None else None,
            engine=source.engine if source is not None else None,
            sequences=current.sequences(),
        )

    return make
