"""What a refused request made is freed at once, not when the garbage collector looks: by then many may have come."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from millstream.ir.errors import invalid
from millstream.server.app import create_app
from millstream.server.settings import Settings
from millstream.surfaces import anthropic_messages, openai_chat_request
from support.provider import ScriptedEngine, ScriptedProvider
from support.waiting import until

USER = [{"role": "user", "content": "hi"}]


class Large:
    """Stands for what a body is decoded into."""


made: list[weakref.ref[Large]] = []


def refuse(*_: Any) -> Any:
    large = Large()
    made.append(weakref.ref(large))
    raise invalid("too many")


class Refusing(ScriptedProvider):
    async def stream(self, request: Any) -> Any:
        refuse()


@pytest.fixture
def without_collector() -> Iterator[None]:
    made.clear()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("where", ["decode", "provider"])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.usefixtures("without_collector")
async def test_nothing_of_a_refused_request_stays(
    monkeypatch: pytest.MonkeyPatch, size: int, where: str, streamed: bool
) -> None:
    provider = ScriptedProvider()
    if where == "decode":
        monkeypatch.setattr(openai_chat_request, "_messages", refuse)
        monkeypatch.setattr(anthropic_messages, "decode_count", refuse)
    else:
        provider = Refusing()
    app = create_app(provider, ScriptedEngine().stats, Settings())
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for path in ("/v1/chat/completions", "/v1/messages/count_tokens"):
            body = {"model": "tiny", "messages": USER, "user": "x" * size, "stream": streamed}
            answer = await client.post(path, json=body)
            assert answer.status_code in (400, 501)
    assert made
    await until(lambda: not any(ref() for ref in made), "it stays")  # the thread that decoded may still be leaving
