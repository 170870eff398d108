"""Limits of keys on a live server, as the official clients meet them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from starlette.testclient import TestClient

from millstream.ir.deltas import Content, Finish, Start, Usage
from millstream.ir.errors import ApiError
from millstream.ir.provider import Embeddings
from millstream.ir.request import ChatRequest, CompletionRequest, Message
from millstream.server.body import ClientGone
from millstream.server.limit_headers import duration
from millstream.server.metering import estimated_tokens
from support.keyed import Keys
from support.live import Live, serving
from support.provider import ScriptedProvider, hello
from support.waiting import until

USER: Any = {"role": "user", "content": "hi"}
CHAT: Any = {"model": "tiny", "messages": [USER]}
ASK: Any = {"model": "tiny", "max_tokens": 50, "messages": [USER]}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    made = Keys(tmp_path_factory.mktemp("keys"))
    made.add("boss", admin=True)
    return made


@pytest.fixture(scope="module")
def live(keys: Keys) -> Iterator[Live]:
    with serving(keys_path=keys.path, keep_alive_seconds=0.1) as live:
        live.app.state.ledger.clock = lambda: 0.0  # nothing is refilled while a test looks
        yield live


@pytest.fixture
def script(live: Live) -> Iterator[Live]:
    yield live
    live.provider.script = hello


def usage(live: Live, keys: Keys, name: str) -> dict[str, Any]:
    """What the operator is told of a key."""
    with live.client() as client:
        data = client.get("/v1/admin/keys", headers=keys.header("boss")).json()["data"]
    found: dict[str, Any] = next(key for key in data if key["name"] == name)
    return found


async def settled(live: Live, keys: Keys, name: str) -> dict[str, Any]:
    """The same, once none of its requests is open."""
    return await until(lambda: not (told := usage(live, keys, name))["open_requests"] and told)


@pytest.fixture
async def clients(live: Live) -> AsyncIterator[Any]:
    """Makes the official clients of a key."""
    made: list[Any] = []

    def make(token: str) -> tuple[openai.AsyncOpenAI, anthropic.AsyncAnthropic]:
        # No TLS here, and loading its certificates takes longer than most tests.
        http = {"verify": False, "trust_env": False}
        one = openai.AsyncOpenAI(
            base_url=f"{live.url}/v1", api_key=token, max_retries=0, http_client=openai.DefaultAsyncHttpxClient(**http)
        )
        other = anthropic.AsyncAnthropic(
            base_url=live.url, api_key=token, max_retries=0, http_client=anthropic.DefaultAsyncHttpxClient(**http)
        )
        made.extend((one, other))
        return one, other

    yield make
    for client in made:
        await client.close()


async def test_a_wrong_key_is_an_authentication_error(clients: Any) -> None:
    one, other = clients("sk-wrong")
    with pytest.raises(openai.AuthenticationError) as refused:
        await one.chat.completions.create(**CHAT)
    assert (refused.value.code, refused.value.response.headers["www-authenticate"][:6]) == ("invalid_api_key", "Bearer")
    with pytest.raises(openai.AuthenticationError):
        await one.responses.create(model="tiny", input="hi", stream=True)
    with pytest.raises(openai.AuthenticationError):
        await one.models.list()
    with pytest.raises(anthropic.AuthenticationError) as denied:
        await other.messages.create(**ASK, stream=True)
    assert denied.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]


async def test_what_a_key_may_not_is_a_permission_error(clients: Any, keys: Keys) -> None:
    one, other = clients(keys.add("plain"))
    with pytest.raises(openai.PermissionDeniedError):
        await one.get("/admin/keys", cast_to=httpx.Response)
    with pytest.raises(openai.PermissionDeniedError):
        await one.chat.completions.create(**CHAT, extra_body={"priority": -1})
    with pytest.raises(anthropic.PermissionDeniedError) as denied:
        await other.messages.create(**ASK, extra_body={"priority": -1})
    assert denied.value.body["error"]["type"] == "permission_error"  # type: ignore[index]
    with pytest.raises(openai.NotFoundError):
        await clients(keys.add("narrow", models=("big",)))[0].chat.completions.create(**CHAT)


async def test_requests_per_minute(clients: Any, keys: Keys, live: Live) -> None:
    one, other = clients(keys.add("rpm", requests_per_minute=2))
    first = await one.chat.completions.with_raw_response.create(**CHAT)
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert first.headers["x-ratelimit-reset-requests"] == "30s"
    assert "x-ratelimit-limit-tokens" not in first.headers
    assert (await one.models.with_raw_response.list()).headers["x-ratelimit-remaining-requests"] == "1"
    before = time.time()
    second = await other.messages.with_raw_response.create(**ASK)
    after = time.time()
    assert second.headers["anthropic-ratelimit-requests-limit"] == "2"
    assert second.headers["anthropic-ratelimit-requests-remaining"] == "0"
    reset = datetime.fromisoformat(second.headers["anthropic-ratelimit-requests-reset"]).timestamp()
    assert before + 59 <= reset <= after + 61
    with pytest.raises(openai.RateLimitError) as limited:
        await one.responses.create(model="tiny", input="hi")
    assert limited.value.code == "rate_limit_exceeded"
    assert limited.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert limited.value.response.headers["retry-after"] == "30"
    with pytest.raises(anthropic.RateLimitError) as refused:
        await other.messages.create(**ASK, stream=True)
    assert refused.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
    assert refused.value.response.headers["retry-after"] == "30"
    told = usage(live, keys, "rpm")
    assert (told["requests"], told["refused"], told["requests_left"], told["tokens_left"]) == (2, 2, 0, None)


async def test_tokens_are_those_of_usage(clients: Any, keys: Keys, live: Live) -> None:
    one, other = clients(keys.add("tpm", tokens_per_minute=20))
    whole = await one.chat.completions.with_raw_response.create(**CHAT)
    total = whole.parse().usage.total_tokens
    assert int(whole.headers["x-ratelimit-remaining-tokens"]) == 20 - total == 12
    streamed = await one.chat.completions.create(**CHAT, stream=True)
    assert [chunk async for chunk in streamed]
    told = await settled(live, keys, "tpm")
    assert (told["prompt_tokens"], told["cached_tokens"], told["completion_tokens"]) == (10, 4, 6)
    assert told["tokens_left"] == 4
    late = await other.messages.with_raw_response.create(**ASK)  # leaves a debt of four
    assert late.headers["anthropic-ratelimit-tokens-remaining"] == "0"
    with pytest.raises(anthropic.RateLimitError) as refused:
        await other.messages.create(**ASK)
    assert refused.value.response.headers["retry-after"] == "15"


def endless(request: Any) -> Iterator[Any]:
    yield Start(prompt_tokens=5, cached_tokens=2)
    while True:
        yield Content("x", token_ids=(7,))
        yield 0.02


async def test_an_answer_that_is_broken_off_has_its_price(clients: Any, keys: Keys, script: Live) -> None:
    script.provider.script = endless
    one, _ = clients(keys.add("leaver", tokens_per_minute=10_000, concurrent=1))
    stream = await one.chat.completions.create(**CHAT, stream=True)
    seen = 0
    async for _ in stream:
        seen += 1
        if seen == 5:
            break
    assert usage(script, keys, "leaver")["open_requests"] == 1
    with pytest.raises(openai.RateLimitError) as crowded:
        await one.chat.completions.create(**CHAT)
    assert crowded.value.code == "concurrent_requests_exceeded"
    assert crowded.value.response.headers["retry-after"]
    await stream.close()
    told = await settled(script, keys, "leaver")
    assert told["prompt_tokens"] == 5
    assert told["completion_tokens"] >= 4
    assert told["tokens_left"] == 10_000 - 5 - told["completion_tokens"]


@pytest.mark.parametrize("failure", [RuntimeError("the engine is gone"), None])
async def test_an_answer_that_fails_has_the_price_of_what_there_was(
    clients: Any, keys: Keys, script: Live, failure: Exception | None
) -> None:
    """A source that raises, and one that just stops."""
    script.provider.script = lambda request: [
        Start(prompt_tokens=5), Content("x", token_ids=(1, 2)), *([failure] if failure else [])
    ]  # fmt: skip
    name = f"failing-{failure is None}"
    one, _ = clients(keys.add(name, tokens_per_minute=1000, concurrent=1))
    with pytest.raises(openai.InternalServerError):
        await one.chat.completions.create(**CHAT)
    told = await settled(script, keys, name)
    assert (told["prompt_tokens"], told["completion_tokens"], told["tokens_left"]) == (5, 2, 993)


async def test_what_never_ran_costs_no_tokens(clients: Any, keys: Keys, script: Live) -> None:
    script.provider.script = lambda request: [3600.0]
    one, _ = clients(keys.add("waiter", tokens_per_minute=1000, concurrent=1))
    before = len(script.provider.requests)
    body = {**CHAT, "messages": [{**USER, "content": "x" * 2000}]}
    asking = asyncio.create_task(one.chat.completions.create(**body))
    await until(lambda: len(script.provider.requests) > before)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    told = await settled(script, keys, "waiter")
    assert (told["tokens_left"], told["requests"]) == (1000, 1)


async def test_a_prompt_that_the_minute_has_no_room_for_is_not_queued(clients: Any, keys: Keys, live: Live) -> None:
    one, _ = clients(keys.add("long", tokens_per_minute=1000))
    await one.chat.completions.create(**CHAT)
    asked = len(live.provider.requests)
    with pytest.raises(openai.RateLimitError) as limited:
        await one.chat.completions.create(**{**CHAT, "messages": [{**USER, "content": "x" * 4000}]})
    assert limited.value.type == "tokens"
    assert len(live.provider.requests) == asked
    assert (await settled(live, keys, "long"))["tokens_left"] == 992


async def test_token_ids_are_asked_for_and_not_told(clients: Any, keys: Keys, script: Live) -> None:
    script.provider.script = lambda request: [
        Start(5), Content("x", token_ids=(1,)), Finish("stop", Usage(5, 2), token_ids=(2,))
    ]  # fmt: skip
    headers = keys.header("boss")
    with script.client() as client:
        whole = client.post("/v1/chat/completions", headers=headers, json=CHAT).text
        stream = client.post("/v1/chat/completions", headers=headers, json={**CHAT, "stream": True}).text
        text = client.post("/v1/completions", headers=headers, json={"model": "tiny", "prompt": "x"}).text
    assert script.provider.requests[-1].output.token_ids
    assert not any("token_ids" in body for body in (whole, stream, text))


async def test_a_revoked_key_finishes_what_is_open_and_begins_nothing(clients: Any, keys: Keys, script: Live) -> None:
    script.provider.script = lambda request: [Start(5), Content("a"), 0.3, Content("b"), Finish("stop", Usage(5, 2))]
    one, _ = clients(keys.add("leaving"))
    stream = await one.chat.completions.create(**CHAT, stream=True)
    keys.revoke("leaving")
    with pytest.raises(openai.AuthenticationError):
        await one.chat.completions.create(**CHAT)
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_embeddings_are_charged_too(tmp_path: Path) -> None:
    from millstream.server.app import create_app
    from millstream.server.settings import Settings
    from support.provider import ScriptedEngine

    class Embedder(ScriptedProvider):
        async def embed(self, request: Any) -> Embeddings:
            assert (request.tenant, request.service.priority) == (keys.id_of("e"), 7)
            return Embeddings(vectors=[b"\0\0\0\0"] * len(request.inputs), prompt_tokens=9)

    keys = Keys(tmp_path)
    keys.add("e", tokens_per_minute=10, priority=7)
    client = TestClient(create_app(Embedder(), ScriptedEngine().stats, Settings(keys_path=keys.path)))
    body = {"model": "tiny", "input": "hi"}
    answer = client.post("/v1/embeddings", headers=keys.header("e"), json=body)
    assert (answer.status_code, answer.headers["x-ratelimit-remaining-tokens"]) == (200, "1")
    assert client.post("/v1/embeddings", headers=keys.header("e"), json={**body, "input": [[1, 2]]}).status_code == 429


@pytest.mark.parametrize(
    ("problem", "left"),
    [
        (ClientGone(), 75),
        (ApiError("the engine is gone", status=503), 75),
        (ApiError("too long", status=400), 100),
        (ApiError("too much waits", status=429), 100),
    ],
)
async def test_embeddings_that_are_broken_off_have_their_price(tmp_path: Path, problem: Exception, left: int) -> None:
    """They tell of their tokens at their end only, so it is what was set aside; what is refused costs nothing."""
    from millstream.server.app import create_app
    from millstream.server.settings import Settings
    from support.provider import ScriptedEngine

    class Failing(ScriptedProvider):
        async def embed(self, request: Any) -> Embeddings:
            raise problem

    keys = Keys(tmp_path)
    keys.add("e", tokens_per_minute=100)
    app = create_app(Failing(), ScriptedEngine().stats, Settings(keys_path=keys.path))
    app.state.ledger.clock = lambda: 0.0
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with contextlib.suppress(AssertionError):  # the transport's, where nobody is answered
            await client.post("/v1/embeddings", headers=keys.header("e"), json={"model": "tiny", "input": "x" * 100})
    (told,) = app.state.ledger.usage()
    assert (told.tokens_left, told.open_requests) == (left, 0)


def test_estimates() -> None:
    chat = ChatRequest(model="m", messages=(Message("user", "x" * 9), Message("user", "")))
    assert estimated_tokens(chat) == 3
    assert estimated_tokens(CompletionRequest(model="m", prompts=("abcd", (1, 2, 3)))) == 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.0004, "1ms"), (0.35, "350ms"), (1, "1s"), (62.5, "1m2.5s"), (3603, "1h0m3s"), (59.9996, "1m0s")],
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text
