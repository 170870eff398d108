"""Messages and the text endpoints over HTTP: envelopes before any handler, and the local pipeline behind them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic, DefaultHttpxClient

from millstream.engine.protocol import TokenDelta, TokenRequest
from millstream.engine.scripted import ScriptedEngine, script
from millstream.ir.deltas import Content, Finish, Start, Usage
from millstream.lint.messages_stream import ERROR_TYPES
from millstream.pipeline.local import LocalProvider
from support.live import Live, serving
from support.messages import fold_messages, legal_messages
from support.provider import ScriptedProvider, Step
from support.scripted_model import BOS, TinyTemplate, TinyTokenizer, alternatives, info

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
JSON = {"content-type": "application/json"}
ASK: dict[str, Any] = {"model": "tiny", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
BODY = json.dumps(ASK).encode()
TEXT = "ab é€😀 <aab> ba\n"


@pytest.fixture(scope="module")
def scripted() -> Iterator[Live]:
    with serving(max_body_bytes=4096, body_seconds=0.3) as live:
        yield live


@pytest.fixture(scope="module")
def local() -> Iterator[Live]:
    tokenizer = TinyTokenizer()
    tokens = tokenizer.encode(TEXT)

    def plan(request: TokenRequest) -> list[TokenDelta]:
        return script(request, tokens, cuts=[2, 5], alternatives=alternatives, cached_tokens=4)

    engine = ScriptedEngine(plan, info=info(context_length=64))
    with serving(LocalProvider(engine, tokenizer=tokenizer, template=TinyTemplate(), name="tiny", created=1)) as live:
        yield live


def post(live: Live, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    with live.client() as client:
        answer = client.post(path, json=body, headers=headers)
    return answer.status_code, answer.json()


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
@pytest.mark.parametrize(
    ("method", "headers", "body", "status", "kind"),
    [
        ("POST", JSON, b"", 400, "invalid_request_error"),
        ("POST", JSON, b"{", 400, "invalid_request_error"),
        ("POST", JSON, b"[]", 400, "invalid_request_error"),
        ("POST", JSON, b"\xff", 400, "invalid_request_error"),
        ("POST", JSON, b'{"model":"tiny","max_tokens":1,"messages":[' + b"[" * 3000, 400, "invalid_request_error"),
        ("POST", {"content-type": "text/plain"}, BODY, 415, "invalid_request_error"),
        ("POST", {**JSON, "content-encoding": "gzip"}, BODY, 415, "invalid_request_error"),
        ("POST", JSON, b" " * 5000, 413, "request_too_large"),
        ("GET", {}, b"", 405, "invalid_request_error"),
        ("DELETE", {}, b"", 405, "invalid_request_error"),
    ],
)
def test_failures_before_the_handler(
    scripted: Live, path: str, method: str, headers: dict[str, str], body: bytes, status: int, kind: str
) -> None:
    with scripted.client() as client:
        answer = client.request(method, path, headers=headers, content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    envelope = answer.json()
    assert set(envelope) == {"type", "error", "request_id"}
    assert envelope["type"] == "error"
    assert envelope["error"]["type"] == kind
    assert kind in ERROR_TYPES
    assert envelope["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (f"{MESSAGES}/batches", {}),
        (f"{MESSAGES}/", {}),
        ("/v1/models/other", {"anthropic-version": "2023-06-01"}),
    ],
)
def test_unknown_urls(scripted: Live, path: str, headers: dict[str, str]) -> None:
    with scripted.client() as client:
        answer = client.get(path, headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


def test_other_paths_keep_the_other_envelope(scripted: Live) -> None:
    with scripted.client() as client:
        for path in ("/v1/messagesx", "/v1/models/other", "/v1/nothing"):
            assert set(client.get(path).json()) == {"error"}
        assert client.get("/v1/models").json()["object"] == "list"


@pytest.mark.parametrize("headers", [{}, {"anthropic-version": "1999-01-01", "anthropic-beta": "a,b"}])
def test_headers_do_not_matter(scripted: Live, headers: dict[str, str]) -> None:
    status, body = post(scripted, f"{MESSAGES}?beta=true", ASK, **headers)
    assert (status, body["content"]) == (200, [{"type": "text", "text": "Hello 0"}])


def test_the_stream_pings_while_nothing_is_generated() -> None:
    raw = b""

    def script(request: Any) -> Iterator[Step]:
        while b"event: ping" not in raw:
            yield 0.01
        yield from (Start(5), Content("a"))
        while raw.partition(b"message_start")[2].count(b"event: ping") < 2:
            yield 0.01
        yield Finish("stop", Usage(5, 1))

    with (
        serving(ScriptedProvider(script), keep_alive_seconds=0.1) as live,
        live.client() as client,
        client.stream("POST", MESSAGES, json={**ASK, "stream": True}) as answer,
    ):
        for part in answer.iter_raw():
            raw += part
    legal_messages(raw)
    before, _, after = raw.partition(b"message_start")
    assert before.count(b"event: ping") >= 1
    assert after.count(b"event: ping") >= 2
    assert fold_messages(raw)["content"][0]["text"] == "a"


def test_what_was_left_out_is_told(scripted: Live) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_\nsearch"}]
    for path, body in ((MESSAGES, ASK), (MESSAGES, {**ASK, "stream": True})):
        with scripted.client() as client:
            answer = client.post(path, json={**body, "tools": tools})
        assert answer.status_code == 200
        assert "tools[0]" in answer.headers["x-millstream-warning"]


def test_a_server_that_drains_says_so() -> None:
    with serving() as live:
        live.app.state.lifecycle.drain()
        status, body = post(live, MESSAGES, ASK)
    assert (status, body["error"]["type"]) == (503, "overloaded_error")


@pytest.mark.parametrize(
    "fields", [{}, {"max_tokens": 3}, {"stop_sequences": ["€😀", "never"]}, {"max_tokens": 100_000}], ids=str
)
def test_stream_whole_and_chat_agree(local: Live, fields: dict[str, Any]) -> None:
    body = {**ASK, **fields}
    chat_body = {"stop" if name == "stop_sequences" else name: value for name, value in body.items()}
    with local.client() as client:
        raw = client.post(MESSAGES, json={**body, "stream": True}).content
        whole = client.post(MESSAGES, json=body).json()
        chat = client.post("/v1/chat/completions", json=chat_body).json()
    told = fold_messages(legal_messages(raw))
    assert {**told, "id": ""} == {**whole, "id": ""}
    assert whole["content"] == [{"type": "text", "text": chat["choices"][0]["message"]["content"]}]
    usage = chat["usage"]
    assert whole["usage"]["input_tokens"] + whole["usage"]["cache_read_input_tokens"] == usage["prompt_tokens"]
    assert whole["usage"]["cache_read_input_tokens"] == 4
    assert whole["usage"]["output_tokens"] == usage["completion_tokens"]
    if "stop_sequences" in fields:
        assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "€😀")
        assert whole["content"][0]["text"] == "ab é"
    else:
        assert whole["stop_reason"] == "max_tokens" if fields.get("max_tokens") == 3 else "end_turn"


@pytest.mark.parametrize("text", ["hi", "x" * 200])
def test_counted_are_the_tokens_of_the_real_request(local: Live, text: str) -> None:
    ask = {**ASK, "system": "Be brief.", "messages": [{"role": "user", "content": text}]}
    status, counted = post(local, f"{COUNT}?beta=true", ask)
    real, answer = post(local, MESSAGES, ask)
    assert status == 200
    assert list(counted) == ["input_tokens"]
    if real == 200:
        assert counted["input_tokens"] == sum(answer["usage"][k] for k in ("input_tokens", "cache_read_input_tokens"))
    else:
        assert answer["error"]["message"] == f"prompt is too long: {counted['input_tokens']} tokens > 63 maximum"


def test_counting_does_not_reach_the_engine(local: Live) -> None:
    assert isinstance(local.provider, LocalProvider)
    engine = local.provider._engine
    assert isinstance(engine, ScriptedEngine)
    before = len(engine.requests)
    ask = {name: value for name, value in ASK.items() if name != "max_tokens"}
    assert post(local, COUNT, ask)[0] == 200
    assert len(engine.requests) == before
    assert post(local, COUNT, {**ask, "model": "other"})[1]["error"]["type"] == "not_found_error"


def test_counting_by_anthropics_client(local: Live) -> None:
    http = DefaultHttpxClient(verify=False, trust_env=False)
    with Anthropic(base_url=local.url, api_key="none", max_retries=0, http_client=http) as client:
        plain = client.messages.count_tokens(model="tiny", messages=ASK["messages"], system="Be brief.")
        beta = client.beta.messages.count_tokens(model="tiny", messages=ASK["messages"], betas=["x"])
        answer = client.messages.create(**ASK)
    assert beta.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    assert plain.input_tokens > beta.input_tokens


def test_what_cannot_count_says_so(scripted: Live) -> None:
    status, body = post(scripted, COUNT, ASK)
    assert (status, body["error"]["type"]) == (501, "api_error")


def test_texts_without_bounds_are_refused(local: Live) -> None:
    text = "word " * 900_000
    conversation = {"model": "tiny", "messages": [{"role": "user", "content": text}]}
    for path, body in (
        ("/tokenize", {"prompt": text}),
        ("/tokenize", conversation),
        ("/apply-template", conversation),
        ("/v1/messages/count_tokens", conversation),
    ):
        status, answer = post(local, path, body)
        assert status == 413
        assert answer["error"].get("code", "text_too_long") == "text_too_long"
        assert "4194304" in answer["error"]["message"]
    for path, body in (
        ("/v1/chat/completions", conversation),
        ("/v1/completions", {"model": "tiny", "prompt": text}),
        ("/v1/responses", {"model": "tiny", "input": text}),
        ("/v1/messages", {**conversation, "max_tokens": 1}),
    ):
        status, answer = post(local, path, body)
        assert status == 400
        assert answer["error"].get("code", "context_length_exceeded") == "context_length_exceeded"
        assert "at least" in answer["error"]["message"]
    status, answer = post(local, "/detokenize", {"tokens": [11111] * 1_400_000})
    assert (status, answer["error"]["param"]) == (400, "tokens")
    assert "8388608 bytes" in answer["error"]["message"]


def test_tokenize_and_back(local: Live) -> None:
    tokens = TinyTokenizer().encode(TEXT)
    assert post(local, "/tokenize", {"prompt": TEXT}) == (
        200,
        {"tokens": [BOS, *tokens], "count": len(tokens) + 1, "max_model_len": 64},
    )
    for body in ({"prompt": TEXT, "add_special_tokens": False}, {"content": TEXT}, {"content": TEXT, "model": "tiny"}):
        assert post(local, "/tokenize", body)[1]["tokens"] == tokens
    assert post(local, "/tokenize", {"content": TEXT, "add_special": True})[1]["tokens"] == [BOS, *tokens]
    assert post(local, "/detokenize", {"tokens": tokens}) == (200, {"prompt": TEXT, "content": TEXT})
    assert post(local, "/detokenize", {"tokens": []}) == (200, {"prompt": "", "content": ""})


def test_a_conversation_as_prompt_and_as_tokens(local: Live) -> None:
    conversation = {"messages": ASK["messages"]}
    prompt = post(local, "/apply-template", conversation)[1]["prompt"]
    counted = post(local, COUNT, ASK)[1]["input_tokens"]
    tokenized = post(local, "/tokenize", conversation)[1]
    assert "hi" in prompt
    assert tokenized["tokens"] == post(local, "/tokenize", {"prompt": prompt})[1]["tokens"]
    assert tokenized["count"] == counted


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": 3}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404, "model"),
        ("/tokenize", {"prompt": "a", "with_pieces": True}, 400, "with_pieces"),
        ("/tokenize", {"prompt": "a", "promt": "b"}, 400, "promt"),
        ("/tokenize", {"messages": [{"role": "robot", "content": ""}]}, 400, "messages[0].role"),
        ("/detokenize", {}, 400, "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [10**9]}, 400, "tokens"),
        ("/detokenize", {"tokens": [10**30]}, 400, "tokens[0]"),
        ("/apply-template", {}, 400, "messages"),
        ("/apply-template", {"messages": ASK["messages"], "model": "other"}, 404, "model"),
    ],
    ids=str,
)
def test_refusals_of_the_text_endpoints(local: Live, path: str, body: Any, status: int, param: str) -> None:
    got, answer = post(local, path, body)
    assert got == status
    assert answer["error"]["param"] == param
