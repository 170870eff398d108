"""Embeddings over HTTP with OpenAI's client, on scripted hidden states."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import openai
import pytest

from millstream.engine.protocol import TokenDelta, TokenRequest
from millstream.engine.scripted import Pause, ScriptedEngine, Step
from millstream.ir.errors import overloaded
from support.live import Live, serving
from support.scripted_model import info, provider
from support.waiting import wait_until

SIZE = 4


def vector_of(request: TokenRequest) -> list[float]:
    return [float(len(request.prompt)), float(request.prompt[-1]), 0.1, -1.0]


def plan(request: TokenRequest) -> Iterable[Step]:
    assert (request.pooling, request.max_tokens) == ("mean", 0)
    yield TokenDelta(id=request.id)
    if request.prompt[-1] == ord("!"):
        yield Pause(None)
    if request.prompt[-1] == ord("?"):
        yield TokenDelta(id=request.id, finish="error", error="broken")
    yield Pause()
    yield TokenDelta(id=request.id, finish="stop", embedding=struct.pack(f"<{SIZE}f", *vector_of(request)))


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(plan, info=msgspec.structs.replace(info(context_length=64), hidden_size=SIZE))


@pytest.fixture
def live(engine: ScriptedEngine) -> Iterator[Live]:
    with serving(provider(engine)) as running:
        yield running


@pytest.fixture
def client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)


def unit(values: list[float]) -> list[float]:
    norm = math.hypot(*values)
    return [value / norm for value in values]


def test_base64_and_float_are_the_same_numbers(client: openai.OpenAI) -> None:
    packed = client.embeddings.create(model="tiny", input="xyz")
    plain = client.embeddings.create(model="tiny", input="xyz", encoding_format="float")
    assert packed.data[0].embedding == plain.data[0].embedding
    assert plain.data[0].embedding == pytest.approx(unit([4.0, 122.0, 0.1, -1.0]))
    assert (plain.usage.prompt_tokens, plain.usage.total_tokens) == (4, 4)
    assert (plain.object, plain.model, plain.data[0].object) == ("list", "tiny", "embedding")


def test_base64_is_little_endian_float32(live: Live) -> None:
    ask = {"model": "tiny", "input": "xyz", "encoding_format": "base64"}
    with live.client() as http:
        text = http.post("/v1/embeddings", json=ask).json()["data"][0]["embedding"]
    values = struct.unpack(f"<{SIZE}f", base64.b64decode(text))
    assert values == pytest.approx(unit([4.0, 122.0, 0.1, -1.0]))


@pytest.mark.parametrize("batch", [["z", "xy", "a"], [[3, 5], [7], [9, 1, 2]], ["k"] * 300])
def test_a_batch_keeps_its_order(client: openai.OpenAI, batch: list[Any]) -> None:
    answer = client.embeddings.create(model="tiny", input=batch)
    assert [item.index for item in answer.data] == list(range(len(batch)))
    for item, entry in zip(answer.data[:3], batch, strict=False):
        alone = client.embeddings.create(model="tiny", input=entry)
        assert item.embedding == alone.data[0].embedding


def test_dimensions_cut_and_scale_again(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="tiny", input=[5, 7], dimensions=2, user="someone")
    assert answer.data[0].embedding == pytest.approx(unit([2.0, 7.0]))


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"input": ""}, "input", None),
        ({"input": []}, "input", None),
        ({"input": [[]]}, "input[0]", None),
        ({"input": [""]}, "input[0]", None),
        ({"input": ["a", ""]}, "input[1]", None),
        ({"input": [[1], []]}, "input[1]", None),
        ({"input": ["a", [1]]}, "input[1]", None),
        ({"input": [[1], [True]]}, "input[1][0]", None),
        ({"input": [1, 10_000_000]}, "input", None),
        ({"input": [1, -1]}, "input[1]", None),
        ({"input": ["a"] * 2049}, "input", None),
        ({"input": ["a", "x" * 64]}, "input[1]", "context_length_exceeded"),
        ({"input": "x" * 100_000}, "input", "context_length_exceeded"),
        ({"input": [[1], [1] * 65]}, "input[1]", "context_length_exceeded"),
        ({"input": {"text": "a"}}, "input", None),
        ({"input": "a", "dimensions": 0}, "dimensions", None),
        ({"input": "a", "dimensions": SIZE + 1}, "dimensions", None),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", None),
        ({"input": "a", "task": "search"}, "task", "unknown_parameter"),
    ],
)
def test_what_is_wrong_is_named(live: Live, fields: dict[str, Any], param: str, code: str | None) -> None:
    with live.client() as http:
        answer = http.post("/v1/embeddings", json={"model": "tiny", **fields})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert code is None or error["code"] == code


def test_what_just_fits_is_read(client: openai.OpenAI) -> None:
    for just in ("x" * 63, [5] * 64):
        assert client.embeddings.create(model="tiny", input=just).usage.prompt_tokens == 64


def test_a_full_queue_tells_when_to_come_back() -> None:
    def full(request: TokenRequest) -> Iterable[Step]:
        raise overloaded("The queue is full.", retry_after=2.0)

    busy = ScriptedEngine(full, info=msgspec.structs.replace(info(), hidden_size=SIZE))
    with serving(provider(busy)) as live, live.client() as http:
        answer = http.post("/v1/embeddings", json={"model": "tiny", "input": ["a", "b"]})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert answer.json()["error"]["code"] == "queue_full"


def test_inputs_wait_for_room_that_the_request_itself_takes() -> None:
    open_now = 0

    def narrow(request: TokenRequest) -> Iterable[Step]:
        nonlocal open_now
        if open_now == 2:
            raise overloaded("The queue is full.", retry_after=2.0)
        open_now += 1
        return reading(request)

    def reading(request: TokenRequest) -> Iterable[Step]:
        nonlocal open_now
        yield Pause()
        open_now -= 1
        yield TokenDelta(id=request.id, finish="stop", embedding=struct.pack(f"<{SIZE}f", *vector_of(request)))

    engine = ScriptedEngine(narrow, info=msgspec.structs.replace(info(), hidden_size=SIZE))
    with serving(provider(engine)) as live:
        client = openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)
        answer = client.embeddings.create(model="tiny", input=["abc"] * 9)
    assert len(answer.data) == 9


@pytest.mark.parametrize(("pooling", "told"), [("rank", "ranks pairs"), ("none", "none for the text"), ("9", "'9'")])
def test_a_model_that_is_not_for_embeddings_says_so(engine: ScriptedEngine, pooling: str, told: str) -> None:
    with serving(provider(engine, pooling=pooling)) as live, live.client() as http:
        answer = http.post("/v1/embeddings", json={"model": "tiny", "input": "a"})
    assert answer.status_code == 501
    assert told in answer.json()["error"]["message"]
    assert engine.requests == []


def test_an_unknown_model_and_a_failing_engine(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="a")
    with pytest.raises(openai.InternalServerError, match="broken"):
        client.embeddings.create(model="tiny", input=["a", "b?", "c!"])
    assert len(engine.aborted) == 1


def test_a_client_that_leaves_frees_its_sequences(live: Live, engine: ScriptedEngine) -> None:
    body = b'{"model": "tiny", "input": ["a!", "b!"]}'
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with live.raw(head + body):
        wait_until(lambda: len(engine.requests) == 2)
        assert engine.aborted == []
    wait_until(lambda: len(engine.aborted) == 2)
