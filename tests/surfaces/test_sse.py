"""The SSE response as a plain ASGI callable: no server, no engine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

from millstream.ir.channel import channel
from millstream.ir.deltas import Content, Delta, Error, Finish, Start, Usage
from millstream.ir.errors import ApiError
from millstream.ir.guard import guard
from millstream.surfaces import openai_chat, openai_completions
from millstream.surfaces.sse import sse_response
from millstream.surfaces.wire import WireOptions
from support.sources import Source
from support.waiting import until
from support.wire import chunks, legal

STOP = Finish("stop", Usage(1, 1))


class Client:
    """The other side of an ASGI response."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.wrote = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await self.reading.wait()
        self.messages.append(message)
        self.wrote.set()

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def complete(self) -> bool:
        return self.messages[-1]["type"] == "http.response.body" and not self.messages[-1].get("more_body")


async def respond(stream, client: Client | None = None, **options: Any) -> Client:
    client = client or Client()
    wire = WireOptions(model="m", stream=True)
    response = sse_response(stream, surface=openai_chat, options=wire, **options)
    await asyncio.wait_for(response({"type": "http"}, client.receive, client.send), 60)
    return client


async def slow(*steps: Delta | float) -> AsyncIterator[Delta]:
    for step in steps:
        if isinstance(step, float):
            await asyncio.sleep(step)
        else:
            yield step


async def test_stream() -> None:
    client = await respond(guard(Source([Start(1), Content("a"), STOP])))
    assert client.status == 200
    assert dict(client.messages[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert client.complete
    assert len(chunks(legal(client.body, "chat_completions"))) == 3


async def test_every_surface_by_its_module() -> None:
    client = Client()
    response = sse_response(guard(Source([Content("a"), STOP])), surface=openai_completions)
    await response({"type": "http"}, client.receive, client.send)
    legal(client.body, "completions")


async def test_an_error_that_comes_first_has_its_own_status() -> None:
    for source in ([Error("full", code="queue_full", status=429)], [Start(1), ApiError("full", status=429)]):
        client = await respond(guard(Source(source)))
        assert client.status == 429
        assert dict(client.messages[0]["headers"])[b"content-type"] == b"application/json"
        assert json.loads(client.body)["error"]["message"] == "full"
        assert client.complete


async def test_an_error_after_text_is_told_in_band() -> None:
    client = await respond(guard(Source([Content("a"), ValueError("secret")])))
    assert client.status == 200
    assert "error" in chunks(legal(client.body, "chat_completions"))[-1]
    assert b"secret" not in client.body
    assert client.complete


async def test_a_late_error_is_told_in_band() -> None:
    client = Client()

    async def late() -> AsyncIterator[Delta]:
        yield Start(1)
        await client.wrote.wait()
        yield Error("late", status=503)

    await respond(guard(late()), client, keep_alive_seconds=0.02)
    assert client.status == 200
    assert chunks(legal(client.body, "chat_completions"))[-1]["error"]["message"] == "late"


async def test_a_stream_that_nobody_guarded_ends_all_the_same() -> None:
    client = await respond(Source([Content("a"), ValueError("secret")]))
    legal(client.body, "chat_completions")
    client = await respond(Source([ApiError("no", status=400)]))
    assert client.status == 400


async def test_silence_is_filled_by_wall_clock() -> None:
    client = Client()

    async def slow_to_speak() -> AsyncIterator[Delta]:
        yield Start(1)
        await until(lambda: client.body.count(b": keep-alive\n\n") >= 2)
        yield Content("a")
        await until(lambda: client.body.partition(b'"a"')[2].count(b": keep-alive\n\n") >= 2)
        yield STOP

    await respond(guard(slow_to_speak()), client, keep_alive_seconds=0.03)
    legal(client.body, "chat_completions")
    before, after = client.body.split(b'"content":"a"')
    assert before.count(b": keep-alive\n\n") >= 2
    assert after.count(b": keep-alive\n\n") >= 2


async def test_the_first_token_is_awaited_no_longer_than_the_keep_alive() -> None:
    client = Client()
    sender, stream = channel(4)
    writing = asyncio.ensure_future(respond(stream, client, keep_alive_seconds=0.05))
    await asyncio.wait_for(client.wrote.wait(), 60)
    assert client.status == 200
    await sender.send(Content("a"))
    await sender.send(STOP)
    await writing
    legal(client.body, "chat_completions")


async def test_a_client_that_leaves_closes_the_stream_at_once() -> None:
    for first in ([Content("a")], []):
        source = Source([])
        waiting = asyncio.Event()

        async def forever(first=first, waiting=waiting, source=source) -> AsyncIterator[Delta]:
            try:
                for delta in first:
                    yield delta
                waiting.set()
                await asyncio.sleep(3600)
            finally:
                await source.aclose()

        client = Client()
        writing = asyncio.ensure_future(respond(guard(forever()), client))
        await waiting.wait()
        client.gone.set()
        await writing
        assert source.closed == 1
        assert b"[DONE]" not in client.body


async def test_a_reader_that_stalls_pauses_the_source() -> None:
    sent = 0

    async def endless() -> AsyncIterator[Delta]:
        nonlocal sent
        while True:
            sent += 1
            yield Content("a")

    client = Client()
    client.reading.clear()
    writing = asyncio.ensure_future(respond(guard(endless()), client, keep_alive_seconds=0.01))
    await until(lambda: sent)
    await asyncio.sleep(0.1)
    assert sent == 1
    client.gone.set()
    await writing
    assert client.messages == []


async def test_a_server_that_stops_tells_its_clients() -> None:
    client = Client()
    writing = asyncio.ensure_future(respond(guard(slow(Content("a"), 3600.0)), client))
    while b'"a"' not in client.body:
        await client.wrote.wait()
        await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert chunks(legal(client.body, "chat_completions"))[-1]["error"]["code"] == "shutting_down"
    assert client.complete


async def test_a_server_that_stops_before_the_first_token_answers_503() -> None:
    client = Client()
    asked = asyncio.Event()

    async def silent() -> AsyncIterator[Delta]:
        asked.set()
        await asyncio.sleep(3600)
        yield STOP

    writing = asyncio.ensure_future(respond(guard(silent()), client))
    await asked.wait()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert client.status == 503


def test_the_library_loads_neither_engine_nor_server() -> None:
    code = (
        "import sys, millstream.ir.channel, millstream.surfaces.openai_chat, millstream.surfaces.openai_completions\n"
        "rooms = ('engine', 'native', 'scheduler', 'models', 'pipeline', 'server')\n"
        "print([name for name in sys.modules if name.startswith(tuple('millstream.' + room for room in rooms))],\n"
        "      [name for name in ('starlette', 'uvicorn', 'numpy', 'prometheus_client') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"
