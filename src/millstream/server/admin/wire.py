"""What an open request has said, and says, as any surface would write it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from millstream.ir.deltas import Delta, Error, Start
from millstream.ir.guard import error_of
from millstream.server.admin.entry import Entry, cancelled_by_operator
from millstream.surfaces import anthropic_messages, openai_chat, responses
from millstream.surfaces.sse import comment
from millstream.surfaces.wire import Surface, WireOptions

SURFACES: dict[str, Surface] = {
    "chat": openai_chat,
    "responses": responses,
    "messages": anthropic_messages,
    openai_chat.NAME: openai_chat,
}
"""By the names of `millstream.admin.views.WIRE_SURFACES`, and by those of metrics and lists of requests."""

LOOK_SECONDS = 0.1
"""How often what is new is written: an eye needs no more, and the stream itself is not made to wait."""

_ONE_CHOICE = ("responses", "messages")


async def wire_view(entry: Entry, surface: str) -> AsyncGenerator[bytes]:
    """The frames of the answer from its beginning to its end. What is no longer kept is told by a comment."""
    choices = 1 if surface in _ONE_CHOICE else entry.facts.choices
    encoder = SURFACES[surface].stream_encoder(
        WireOptions(model=entry.facts.model, stream=True, choices=choices, usage=True)
    )
    watcher = entry.watch()
    try:
        if choices < entry.facts.choices:
            yield comment(f"choice 0 of {entry.facts.choices}: this format has one")
        yield encoder.start() or comment("open")
        while True:
            over = entry.end is not None
            frames = []
            deltas = watcher.take()
            if watcher.lost:
                watcher.lost = False
                frames.append(comment("text is missing here: it is no longer kept"))
            frames += [encoder.encode(delta) for delta in deltas if _choice(delta) < choices]
            if over:
                if entry.end != "finished" and not any(isinstance(delta, Error) for delta in deltas):
                    frames.append(encoder.encode(_end_of(entry)))
                frames.append(encoder.end())
            if written := b"".join(frames):
                yield written
            if over:
                return
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        entry.unwatch(watcher)


def _choice(delta: Delta) -> int:
    return 0 if isinstance(delta, Start | Error) else delta.choice


def _end_of(entry: Entry) -> Error:
    """For a request that ended without saying so to its client, who had left or was cut off."""
    if entry.cancelled:
        return error_of(cancelled_by_operator())
    return Error(f"The request ended: {entry.timeline[-1].note}.", code="request_ended")
