"""The whole way from bytes to bytes over the local pipeline: stream, whole answer and both surfaces agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.engine.protocol import TokenDelta, TokenRequest
from millstream.engine.scripted import ScriptedEngine, script
from millstream.pipeline.local import LocalProvider
from support.live import Live, serving
from support.scripted_model import TinyTemplate, TinyTokenizer, alternatives, info
from support.wire import chunks, fold_chat, fold_completion, legal

CHAT = "/v1/chat/completions"
TEXT = "ab é€😀 <aab> ba\n"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    tokenizer = TinyTokenizer()
    tokens = tokenizer.encode(TEXT)

    def plan(request: TokenRequest) -> list[TokenDelta]:
        return script(request, tokens, cuts=[2, 5], alternatives=alternatives, cached_tokens=4)

    engine = ScriptedEngine(plan, info=info(context_length=64))
    provider = LocalProvider(
        engine, tokenizer=tokenizer, template=TinyTemplate(), name="tiny", created=1, reasoning_format="none"
    )
    with serving(provider) as live:
        yield live


def ask(live: Live, path: str, **fields: Any) -> tuple[bytes, dict[str, Any]]:
    """The same request streamed and whole."""
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    body = {"model": "tiny", **prompt, **fields}
    with live.client() as client:
        whole = client.post(path, json=body)
        stream = client.post(path, json={**body, "stream": True, "stream_options": {"include_usage": True}})
    assert whole.status_code == stream.status_code == 200, (whole.text, stream.text)
    return stream.content, whole.json()


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 50},
        {"max_tokens": 3, "n": 2},
        {"max_tokens": 50, "stop": ["€😀", "never"]},
        {"max_tokens": 50, "return_token_ids": True, "stop": "<"},
    ],
    ids=str,
)
def test_stream_whole_and_surfaces_agree(live: Live, fields: dict[str, Any]) -> None:
    n = fields.get("n", 1)
    chat_stream, chat = ask(live, CHAT, logprobs=True, top_logprobs=2, **fields)
    text_stream, text = ask(live, "/v1/completions", logprobs=2, **fields)
    chats = fold_chat(legal(chat_stream, "chat_completions", choices=n, usage=True))
    texts = fold_completion(legal(text_stream, "completions", choices=n, usage=True))
    for index in range(n):
        message = chat["choices"][index]["message"]["content"]
        assert message == chats[index]["content"] == texts[index]["text"] == text["choices"][index]["text"]
        assert TEXT.startswith(message.rstrip("�"))
        assert chats[index]["logprobs"] == chat["choices"][index]["logprobs"]["content"]
        assert texts[index]["logprobs"] == text["choices"][index]["logprobs"]
        assert chats[index]["token_ids"] == chat["choices"][index].get("token_ids", [])
        assert chats[index]["finish_reason"] == chat["choices"][index]["finish_reason"]
    assert chunks(chat_stream)[-1]["usage"] == chat["usage"]
    assert chunks(text_stream)[-1]["usage"] == text["usage"]
    assert chat["usage"]["prompt_tokens_details"]["cached_tokens"] == 4


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(live: Live) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 200}]}
    with live.client() as client:
        answer = client.post(CHAT, content=json.dumps(body))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert "64 tokens" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "fields", [{"logit_bias": {"99999": 1}}, {"stop_token_ids": [99999]}, {"model": "other"}], ids=str
)
def test_what_only_the_model_can_refuse(live: Live, fields: dict[str, Any]) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **fields}
    with live.client() as client:
        answer = client.post(CHAT, json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"]
