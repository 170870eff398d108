"""Log probabilities of prompts on the default model, as evaluation harnesses ask for them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
from numpy.typing import NDArray
from openai.types.completion_choice import Logprobs

from support.engine import Engine
from support.real_models import DEFAULT_MODEL, real_model
from support.served import Served, serve

MODEL = "smollm2-135m-instruct"
TEXT = "The Danube flows through Vienna, Bratislava and Budapest: ten countries, 2850 km, déjà vu, 東京 😀. "


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(real_model(DEFAULT_MODEL)) as server:
        yield server


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=600) as client:
        yield client


def ask(client: openai.OpenAI, prompt: Any, max_tokens: int = 0, logprobs: int = 3, **how: Any) -> list[Logprobs]:
    answer = client.completions.create(
        model=MODEL, prompt=prompt, echo=True, logprobs=logprobs, max_tokens=max_tokens, temperature=0, **how
    )
    found = []
    for choice in sorted(answer.choices, key=lambda choice: choice.index):
        assert choice.logprobs is not None
        found.append(choice.logprobs)
    return found


def token_ids(client: openai.OpenAI, text: str) -> list[int]:
    body = client.with_options(base_url=str(client.base_url).removesuffix("v1/")).post(
        "/tokenize", body={"prompt": text}, cast_to=object
    )
    assert isinstance(body, dict)
    return body["tokens"]


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    x = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def test_the_numbers_are_those_of_the_model(client: openai.OpenAI) -> None:
    """300 tokens are more than a step reads."""
    ids = (token_ids(client, TEXT) * 10)[:300]
    (told,) = ask(client, ids)
    with Engine(real_model(DEFAULT_MODEL)) as engine:
        wanted = log_softmax(engine.logits(ids))
    assert told.token_logprobs is not None
    assert told.top_logprobs is not None
    assert (told.token_logprobs[0], told.top_logprobs[0]) == (None, None)
    np.testing.assert_allclose(
        np.array(told.token_logprobs[1:], float), wanted[np.arange(299), ids[1:]], atol=1e-5, rtol=1e-6
    )
    for row, top in zip(wanted[:-1], told.top_logprobs[1:], strict=True):
        np.testing.assert_allclose(sorted(top.values(), reverse=True)[:3], np.sort(row)[::-1][:3], atol=1e-5)


def test_what_was_generated_is_scored_alike(client: openai.OpenAI) -> None:
    ids = token_ids(client, TEXT)
    generated = client.completions.create(
        model=MODEL, prompt=ids, logprobs=2, max_tokens=20, temperature=0, extra_body={"return_token_ids": True}
    )
    more = generated.choices[0].token_ids  # type: ignore[attr-defined]
    (scored,) = ask(client, [*ids, *more], logprobs=2)
    told = generated.choices[0].logprobs
    assert told is not None
    assert scored.token_logprobs is not None
    assert scored.top_logprobs is not None
    assert scored.token_logprobs[len(ids) :] == told.token_logprobs
    assert scored.top_logprobs[len(ids) :] == told.top_logprobs
    (echoed,) = ask(client, ids, max_tokens=20, logprobs=2)
    whole, part = echoed.to_dict(), scored.to_dict()
    assert {name: values[: len(ids) + 20] for name, values in whole.items()} == part  # type: ignore[index]


def test_the_same_bits_in_a_batch_beside_others_cached_and_streamed(client: openai.OpenAI) -> None:
    texts = ["Dé", TEXT * 3, "Short.", TEXT + "And then?"]
    alone = [ask(client, text, max_tokens=1)[0] for text in texts]

    def chatter() -> None:
        client.completions.create(model=MODEL, prompt=[TEXT, "And"], max_tokens=20)

    beside = threading.Thread(target=chatter)
    beside.start()
    batch = ask(client, texts, max_tokens=1)
    beside.join()
    assert batch == alone
    assert ask(client, texts, max_tokens=1) == alone
    streamed: dict[str, list[Any]] = {}
    for chunk in client.completions.create(
        model=MODEL, prompt=texts[1], echo=True, logprobs=3, max_tokens=1, temperature=0, stream=True
    ):
        for name, values in (chunk.choices[0].logprobs or Logprobs()).to_dict().items():
            streamed.setdefault(name, []).extend(values)  # type: ignore[arg-type]
    assert streamed == alone[1].to_dict()


def test_a_crash_loses_and_repeats_nothing(client: openai.OpenAI, served: Served) -> None:
    text = TEXT * 10  # more than a step reads
    (wanted,) = ask(client, text, max_tokens=5)
    streamed: dict[str, list[Any]] = {}
    killed = False
    for chunk in client.completions.create(
        model=MODEL, prompt=text, echo=True, logprobs=3, max_tokens=5, temperature=0, stream=True
    ):
        for name, values in (chunk.choices[0].logprobs or Logprobs()).to_dict().items():
            streamed.setdefault(name, []).extend(values)  # type: ignore[arg-type]
        if not killed and len(streamed.get("tokens", [])) > 1:
            os.kill(served.engine_pid(), signal.SIGKILL)
            killed = True
    assert killed
    assert streamed == wanted.to_dict()


def test_tokens_stand_where_the_offsets_say(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=TEXT, echo=True, logprobs=0, max_tokens=4, temperature=0)
    text, told = answer.choices[0].text, answer.choices[0].logprobs
    assert text.startswith(TEXT)
    assert told is not None
    assert told.tokens is not None
    assert told.text_offset is not None
    for token, offset in zip(told.tokens, told.text_offset, strict=True):
        if not token.startswith(("bytes:", "<|")):
            assert text[offset : offset + len(token)] == token
