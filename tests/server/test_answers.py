"""The answer route without a socket: what happens to a stream that nobody wants any more."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from millstream.ir.guard import guard
from millstream.ir.provider import DeltaStream
from millstream.ir.request import Request
from millstream.server.admin.registry import Requests
from millstream.server.answers import AnswerRoute, PlainExchange
from millstream.server.body import ClientGone
from millstream.server.lifecycle import Lifecycle
from millstream.server.metrics import Metrics
from millstream.server.settings import Settings
from millstream.surfaces import openai_chat
from millstream.surfaces.wire import Limits
from support.provider import ScriptedProvider
from support.sources import Source

BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}).encode()


class SlowProvider(ScriptedProvider):
    """Takes its time to accept a request; ``stubborn``: accepts it even when it is cancelled meanwhile."""

    def __init__(self, *, stubborn: bool) -> None:
        super().__init__()
        self.stubborn = stubborn
        self.source = Source([])
        self.asked = asyncio.Event()

    async def stream(self, request: Request) -> DeltaStream:
        self.asked.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
        return guard(self.source)


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_client_that_leaves_while_its_request_is_taken_in(stubborn: bool) -> None:
    provider = SlowProvider(stubborn=stubborn)
    sent: list[dict[str, Any]] = []
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    messages.put_nowait({"type": "http.request", "body": BODY, "more_body": False})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    exchange = partial(PlainExchange, openai_chat, provider, Limits())
    route = AnswerRoute(openai_chat.NAME, exchange, Requests(Metrics(lambda: 0), Lifecycle()), Settings())
    answering = asyncio.ensure_future(route({"type": "http", "headers": []}, messages.get, send))
    await provider.asked.wait()
    messages.put_nowait({"type": "http.disconnect"})
    with pytest.raises(ClientGone):
        await asyncio.wait_for(answering, 60)
    assert sent == []
    assert provider.source.closed == stubborn
