"""Answers of the server against the schemas that it publishes: every member is described, every event is told of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from millstream.engine.protocol import EngineStats
from millstream.ir.deltas import (
    Content,
    Error,
    Finish,
    Reasoning,
    Refusal,
    Start,
    ToolCallArgs,
    ToolCallStart,
    Usage,
)
from millstream.ir.errors import engine_failed, overloaded
from millstream.ir.provider import Embeddings
from millstream.server.app import create_app
from millstream.server.docs.answers import ANSWERS
from support.provider import ScriptedEngine, ScriptedProvider
from support.wire import logprob

CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
USER = {"role": "user", "content": "hi"}
ASKS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [USER]},
    COMPLETIONS: {"prompt": "a"},
    RESPONSES: {"input": "hi"},
    MESSAGES: {"messages": [USER], "max_tokens": 9},
}
FUNCTION = {"name": "add", "parameters": {"type": "object"}}
TOOLS: dict[str, Any] = {
    CHAT: [{"type": "function", "function": FUNCTION}],
    RESPONSES: [
        {"type": "function", **FUNCTION},
        {"type": "custom", "name": "say"},
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "sub"}]},
    ],
    MESSAGES: [{"name": "add", "input_schema": {"type": "object"}}],
}
STORIES: dict[str, list[Any]] = {
    "text": [Start(5, 2), Content("Hel", 0, (1,), (logprob("Hel"),)), Content("lo"), Finish("stop", Usage(5, 3, 2))],
    "nothing": [Start(5), Finish("stop", Usage(5, 0))],
    "cut": [Start(5), Content("Hel"), Finish("length", Usage(5, 3))],
    "stopped": [Start(5), Content("Hel"), Finish("stop", Usage(5, 3), stop_sequence="x")],
    "filtered": [Start(5), Content("Hel"), Finish("content_filter", Usage(5, 3))],
    "refusal": [Start(5), Content("No."), Refusal("No."), Finish("stop", Usage(5, 3))],
    "error": [Start(5), Content("Hel"), Error("broken", code="engine_error", status=503)],
    "calls": [
        Start(5),
        Reasoning("hm", 0, (1,)),
        Content("Let me see."),
        ToolCallStart(0, "call_a", "add", 0, (2,)),
        ToolCallArgs(0, '{"a":'),
        ToolCallArgs(0, "1}"),
        ToolCallStart(1, "call_b", "say"),
        ToolCallArgs(1, '{"input": "a'),
        ToolCallArgs(1, 'b"}'),
        ToolCallStart(2, "call_c", "ns__sub"),
        ToolCallArgs(2, "{}"),
        Finish("tool_calls", Usage(5, 9, 0, 1)),
    ],
}
TELLING: dict[str, dict[str, Any]] = {
    CHAT: {"logprobs": True, "top_logprobs": 2, "return_token_ids": True, "service_tier": "auto"},
    COMPLETIONS: {"logprobs": 2, "return_token_ids": True},
    RESPONSES: {
        "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
        "reasoning": {"summary": "auto", "effort": "low"},
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        "user": "u",
        "truncation": "auto",
    },
    MESSAGES: {"thinking": {"type": "enabled", "budget_tokens": 5, "display": "omitted"}},
}


class Provider(ScriptedProvider):
    async def embed(self, request: Any) -> Embeddings:
        return Embeddings(vectors=[bytes(8) for _ in request.inputs], prompt_tokens=3)

    async def render(self, request: Any) -> str:
        return "rendered"

    async def prompt_tokens(self, request: Any) -> list[int]:
        return [1, 2]

    async def tokenize(self, text: str, **options: Any) -> list[int]:
        return [1, 2, 3]

    async def detokenize(self, tokens: Any, **options: Any) -> str:
        return "text"


class Judge:
    """The published document, with every described structure closed: what it does not name must not be sent."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._paths = document["paths"]
        schemas = document["components"]["schemas"]
        for schema in schemas.values():
            if schema.get("properties"):
                schema["additionalProperties"] = False
        self._root = {"components": {"schemas": schemas}}

    def check(self, method: str, path: str, status: int, body: Any) -> None:
        """Raises where the body is not as described for the route and status."""
        responses = self._paths[path][method.lower()]["responses"]
        described = responses.get(str(status), responses["default"])["content"]["application/json"]["schema"]
        self._validate(described, body)

    def check_stream(self, path: str, raw: str) -> set[str]:
        """Types of the events, after each was held against its description."""
        described = self._paths[path]["post"]["responses"]["200"]["content"]["text/event-stream"]
        events = [json.loads(line[6:]) for line in raw.split("\n") if line.startswith("data: {")]
        for event in events:
            self._validate(described["x-millstream-event"], event)
        return {event.get("type", "") for event in events}

    def _validate(self, schema: dict[str, Any], value: Any) -> None:
        Draft202012Validator({**self._root, **schema}).validate(value)


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture(scope="module")
def client(provider: Provider, engine: ScriptedEngine) -> TestClient:
    return TestClient(create_app(provider, engine.stats), raise_server_exceptions=False)


@pytest.fixture(scope="module")
def judge(client: TestClient) -> Judge:
    return Judge(client.get("/openapi.json").json())


@pytest.fixture(autouse=True)
def fresh(provider: Provider) -> None:
    provider.__init__()  # type: ignore[misc]


def asks(path: str) -> Iterator[dict[str, Any]]:
    """A bare request, and one for everything that an answer can tell."""
    tools = {"tools": TOOLS[path]} if path in TOOLS else {}
    yield {"model": "tiny", **ASKS[path], **tools}
    yield {"model": "tiny", **ASKS[path], **tools, **TELLING[path]}


@pytest.mark.parametrize("path", ASKS)
@pytest.mark.parametrize("story", STORIES)
def test_whole_answers(path: str, story: str, provider: Provider, client: TestClient, judge: Judge) -> None:
    provider.script = lambda request: STORIES[story]
    for ask in asks(path):
        answer = client.post(path, json=ask)
        assert (answer.status_code == 200) == (story != "error")
        judge.check("POST", path, answer.status_code, answer.json())


@pytest.mark.parametrize("path", ASKS)
def test_streamed_events(path: str, provider: Provider, client: TestClient, judge: Judge) -> None:
    """Each event is as described, and each that is described is sent by one of the stories."""
    seen: set[str] = set()
    for story in STORIES.values():
        provider.script = lambda request, story=story: story
        for ask in asks(path):
            usage = {"include_usage": True, "continuous_usage_stats": True}
            options = {"stream_options": usage} if path in (CHAT, COMPLETIONS) else {}
            answer = client.post(path, json={**ask, **options, "stream": True})
            seen |= judge.check_stream(path, answer.text)
    types = ANSWERS["POST", path].events
    union = getattr(types[0], "__args__", ())
    assert seen == ({each.__struct_config__.tag for each in union} or {""})


def test_many_choices(client: TestClient, judge: Judge) -> None:
    for path in (CHAT, COMPLETIONS):
        ask = {"model": "tiny", **ASKS[path], "n": 3}
        judge.check("POST", path, 200, client.post(path, json=ask).json())
        judge.check_stream(path, client.post(path, json={**ask, "stream": True}).text)


def test_stored_answers(provider: Provider, client: TestClient, judge: Judge) -> None:
    provider.script = lambda request: STORIES["calls"]
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}], "name": "ann"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "reasoning_content": "hm"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm", "refusal": "no"},
        {"role": "tool", "tool_call_id": "c", "content": "b"},
    ]
    asked = {"tools": TOOLS[CHAT], "tool_choice": {"type": "function", "function": {"name": "add"}}, "seed": 3}
    made = client.post(CHAT, json={"model": "tiny", "messages": messages, "store": True, **asked, **TELLING[CHAT]})
    one = f"{CHAT}/{made.json()['id']}"
    template = f"{CHAT}/{{id}}"
    judge.check("GET", CHAT, 200, client.get(CHAT).json())
    judge.check("GET", template, 200, client.get(one).json())
    judge.check("POST", template, 200, client.post(one, json={"metadata": {"a": "b"}}).json())
    judge.check("GET", f"{template}/messages", 200, client.get(f"{one}/messages").json())
    judge.check("DELETE", template, 200, client.delete(one).json())
    for method, path in (("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/messages")):
        answer = client.request(method, one + path, json={"metadata": {}} if method == "POST" else None)
        assert answer.status_code == 404
        judge.check(method, template + path, 404, answer.json())

    one = f"{RESPONSES}/{client.post(RESPONSES, json={'model': 'tiny', 'input': 'hi'}).json()['id']}"
    template = f"{RESPONSES}/{{id}}"
    judge.check("GET", template, 200, client.get(one).json())
    judge.check("GET", f"{template}/input_items", 200, client.get(f"{one}/input_items").json())
    judge.check("POST", f"{template}/cancel", 400, client.post(f"{one}/cancel").json())
    judge.check("DELETE", template, 200, client.delete(one).json())
    judge.check("DELETE", template, 404, client.delete(one).json())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages/count_tokens", {"model": "tiny", "messages": [USER]}),
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [1]}),
        ("/apply-template", {"messages": [USER]}),
        ("/v1/embeddings", {"model": "tiny", "input": ["a", "b"]}),
        ("/v1/embeddings", {"model": "tiny", "input": "a", "encoding_format": "base64"}),
    ],
)
def test_small_routes(path: str, body: dict[str, Any], client: TestClient, judge: Judge) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    judge.check("POST", path, 200, answer.json())


@pytest.mark.parametrize("headers", [{}, {"anthropic-version": "2023-06-01"}])
def test_models(headers: dict[str, str], client: TestClient, judge: Judge) -> None:
    judge.check("GET", "/v1/models", 200, client.get("/v1/models", headers=headers).json())
    judge.check("GET", "/v1/models/{model}", 200, client.get("/v1/models/tiny", headers=headers).json())
    judge.check("GET", "/v1/models/{model}", 404, client.get("/v1/models/none", headers=headers).json())
    judge.check("GET", "/", 200, client.get("/").json())


def test_health(engine: ScriptedEngine, client: TestClient, judge: Judge) -> None:
    states: list[Any] = [
        EngineStats(),
        EngineStats(running=1, waiting=1, waits={"kv_cache": 1}),
        EngineStats(running=1, idle_seconds=1000),
        engine_failed("gone"),
    ]
    statuses = []
    for state in states:
        engine.answer = state
        for path in ("/health", "/ready"):
            answer = client.get(path)
            statuses.append(answer.status_code)
            judge.check("GET", path, answer.status_code, answer.json())
    assert statuses == [200, 200, 200, 200, 200, 503, 200, 503]
    client.app.state.lifecycle.drain()  # type: ignore[attr-defined]
    try:
        judge.check("GET", "/ready", 503, client.get("/ready").json())
    finally:
        client.app.state.lifecycle.draining = False  # type: ignore[attr-defined]


FAULTS: list[Callable[[dict[str, Any]], Any]] = [
    lambda ask: b"{",
    lambda ask: {**ask, "model": "none"},
    lambda ask: {**ask, "unknown": 1},
    lambda ask: {**ask, "temperature": 9},
]


@pytest.mark.parametrize("path", ASKS)
def test_failures(path: str, provider: Provider, client: TestClient, judge: Judge) -> None:
    ask = {"model": "tiny", **ASKS[path]}
    for fault in FAULTS:
        broken = fault(ask)
        content = broken if isinstance(broken, bytes) else json.dumps(broken).encode()
        answer = client.post(path, content=content, headers={"content-type": "application/json"})
        assert 400 <= answer.status_code < 500
        judge.check("POST", path, answer.status_code, answer.json())
    provider.refuse = overloaded("The queue is full.", retry_after=2)
    answer = client.post(path, json=ask)
    assert answer.status_code == 429
    judge.check("POST", path, 429, answer.json())
    judge.check("POST", path, 405, client.put(path).json())


def test_a_judge_that_finds_something(judge: Judge) -> None:
    """Members that are missing or not described are found."""
    count = {"input_tokens": 3}
    judge.check("POST", f"{MESSAGES}/count_tokens", 200, count)
    for wrong in ({}, {"input_tokens": "3"}, {**count, "more": 1}):
        with pytest.raises(Exception, match=r"is a required|is not of type|Additional properties"):
            judge.check("POST", f"{MESSAGES}/count_tokens", 200, wrong)
