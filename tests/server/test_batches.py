"""Legacy completions over HTTP with OpenAI's client: batches of prompts, echo, best_of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import openai
import pytest

from millstream.engine.protocol import TokenAlternatives, TokenRequest
from millstream.engine.scripted import Pause, ScriptedEngine, Step, script
from support.live import Live, serving
from support.scripted_model import EOS, TinyTokenizer, info, provider


def upper(request: TokenRequest) -> Iterable[Step]:
    """The prompt in capitals, then the number of the choice; later choices are likelier."""
    tokens = [*(byte - 32 for byte in request.prompt[1:]), 48 + request.choice, EOS]
    for step in script(request, tokens, alternatives=lambda _: TokenAlternatives(request.choice - 9.0)):
        yield Pause()
        yield step


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(provider(ScriptedEngine(upper, info=info()))) as running:
        yield running


@pytest.fixture(scope="module")
def client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)


def test_streamed_and_whole_are_one(client: openai.OpenAI) -> None:
    how = {"model": "tiny", "prompt": ["a", "bc"], "n": 2, "echo": True}
    whole = client.completions.create(**how)
    streamed: dict[int, str] = {}
    usage = None
    for chunk in client.completions.create(**how, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            streamed[choice.index] = streamed.get(choice.index, "") + choice.text
        usage = chunk.usage or usage
    texts = {choice.index: choice.text for choice in whole.choices}
    assert texts == streamed == {0: "aA0", 1: "aA1", 2: "bcBC0", 3: "bcBC1"}
    assert whole.usage == usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 14)


def test_prompt_only(client: openai.OpenAI) -> None:
    for prompt in ("abc", [97, 98, 99]):
        answer = client.completions.create(model="tiny", prompt=prompt, echo=True, max_tokens=0)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("abc", "length")
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.completions.create(model="tiny", prompt="a", max_tokens=0)


def test_best_of(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=["a", "b"], best_of=3)
    assert [choice.text for choice in answer.choices] == ["A2", "B2"]
    with pytest.raises(openai.BadRequestError, match="best_of"):
        client.completions.create(model="tiny", prompt="a", best_of=3, stream=True)


@pytest.mark.parametrize("prompt", ["", [""], [[]]], ids=str)
def test_an_empty_prompt_begins_a_text(prompt: str | list[Any], client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=prompt, echo=True, logprobs=0)
    assert answer.choices[0].text == "0"
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens == ["<bos>", "0", "<eos>"]
    with pytest.raises(openai.BadRequestError, match="prompt must not be an empty array"):
        client.completions.create(model="tiny", prompt=[])


@pytest.mark.parametrize("prompt", ["", [""], [[]]], ids=str)
def test_without_a_token_to_begin_with_an_empty_prompt_is_refused(prompt: str | list[Any]) -> None:
    bare = provider(ScriptedEngine(upper, info=info()), tokenizer=TinyTokenizer(bos=False))
    with serving(bare) as live, live.client() as http:
        answer = http.post("/v1/completions", json={"model": "tiny", "prompt": prompt})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")
    assert "no token to begin a text" in answer.json()["error"]["message"]


@pytest.mark.parametrize("field", [{"suffix": "z"}])
def test_what_this_model_cannot_do_is_named(client: openai.OpenAI, field: dict[str, object]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="a", **field)  # type: ignore[call-overload]
    assert caught.value.param == next(iter(field))
