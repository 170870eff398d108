"""Embeddings of the default model: near for what is alike, the same bits in a batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import openai
import pytest

from support.real_models import DEFAULT_MODEL, real_model
from support.served import serve

MODEL = "smollm2-135m-instruct"
TEXTS = ["The cat sleeps on the warm sofa.", "A kitten naps on a cosy couch.", "Interest rates rose by two per cent."]


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    model: Path = real_model(DEFAULT_MODEL)
    with (
        serve(model, "--pooling", request.param) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client,
    ):
        yield client


@pytest.mark.parametrize("client", ["mean", "last"], indirect=True)
def test_alike_is_nearer_than_unlike(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model=MODEL, input=TEXTS)
    vectors = np.array([item.embedding for item in answer.data])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    near = {pair: float(vectors[pair[0]] @ vectors[pair[1]]) for pair in combinations(range(3), 2)}
    assert near[0, 1] > max(near[0, 2], near[1, 2]), near


@pytest.mark.parametrize("client", ["mean", pytest.param("cls", marks=pytest.mark.thorough), "last"], indirect=True)
def test_a_batch_has_the_bits_of_each_alone(client: openai.OpenAI) -> None:
    texts = [*TEXTS, "A longer text. " * 15, "Short."]
    batch = client.embeddings.create(model=MODEL, input=texts)
    alone = [client.embeddings.create(model=MODEL, input=text, encoding_format="float") for text in texts]
    assert [item.embedding for item in batch.data] == [answer.data[0].embedding for answer in alone]
    assert batch.usage.prompt_tokens == sum(answer.usage.prompt_tokens for answer in alone)
