"""Two real models in one server: both answer at once, one comes and goes, and what went leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx
import pytest

from millstream.engine.memory import resident_bytes
from support.real_models import DEFAULT_MODEL, real_model
from support.served import Served, serve
from support.tiny_models import build_tiny_model

PROMPT = "The capital of France is"


class Pair(NamedTuple):
    """A server of two models: the default one, which stays, and one that comes and goes."""

    server: Served
    one: str
    other: str


@pytest.fixture(scope="module", params=["tiny", pytest.param("gemma3", marks=pytest.mark.thorough)])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both are served from the start; the other is in the model folder as well."""
    home = tmp_path_factory.mktemp("home")
    (home / "models").mkdir()
    if request.param == "tiny":
        other = build_tiny_model(home / "models" / "tiny.gguf")
    else:
        other = home / "models" / "gemma-3-270m.Q4_K_M.gguf"
        other.symlink_to(real_model(request.param))
    with (
        patch.dict(os.environ, {"MILLSTREAM_HOME": str(home)}),
        serve(real_model(DEFAULT_MODEL), str(other), "--kv-cache", "4096t") as server,
    ):
        one, second = (
            card["id"] for card in httpx.get(f"{server.url}/v1/models", timeout=60, trust_env=False).json()["data"]
        )
        assert one == "smollm2-135m-instruct"
        yield Pair(server, one, second)


@pytest.fixture
def client(pair: Pair) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=pair.server.url, timeout=300, trust_env=False, verify=False) as client:
        yield client


def complete(client: httpx.Client, model: str) -> str:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model
    text: str = answer.json()["choices"][0]["text"]
    return text


def admin(client: httpx.Client, verb: str, model: str) -> None:
    answer = client.post(f"/v1/admin/models/{verb}", json={"model": model})
    assert answer.status_code == 202, answer.text


def until(client: httpx.Client, model: str, state: str) -> None:
    def there() -> bool:
        views = client.get("/v1/admin/models").json()["data"]
        return any((view["name"], view["state"]) == (model, state) for view in views)

    eventually(there, f"{model} is {state}")


def eventually(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline, f"not so after 300 s: {what}"
        time.sleep(0.05)


@pytest.mark.slow
def test_models_come_and_go(pair: Pair, client: httpx.Client) -> None:
    served, one, other = pair
    alone = {model: complete(client, model) for model in (one, other)}
    assert "Paris" in alone[one]
    assert alone[one] != alone[other]
    with ThreadPoolExecutor(6) as threads:
        models = [one, other] * 3
        assert list(threads.map(lambda model: complete(client, model), models)) == [alone[model] for model in models]

    resident = []
    for _ in range(3):
        admin(client, "unload", other)
        until(client, other, "on_disk")
        assert len(served.engine_pids()) == 1
        assert client.post("/v1/completions", json={"model": other, "prompt": "a"}).status_code == 404
        assert complete(client, one) == alone[one]
        resident.append(resident_bytes(served.process.pid))
        admin(client, "load", other)
        until(client, other, "loaded")
        assert complete(client, other) == alone[other]
        assert len(served.engine_pids()) == 2
    # A tokenizer of 262,144 tokens takes some 100 MB: it must not stay each time. The heap settles over some cycles.
    assert resident[-1] - resident[0] < 80 << 20, resident


@pytest.mark.slow
def test_the_crash_of_one_engine_is_not_the_others(pair: Pair, client: httpx.Client) -> None:
    served, one, other = pair
    alone = complete(client, one)
    before = served.engine_pids()
    os.kill(before[-1], signal.SIGKILL)
    assert complete(client, one) == alone
    eventually(lambda: set(served.engine_pids()) - set(before), "the engine is started again")
    eventually(lambda: client.get("/ready").json()["engines"][1]["status"] == "ready", "it is ready")
    restarts = [engine["restarts"] for engine in client.get("/ready").json()["engines"]]
    assert restarts == [0, 1]
    text = client.get("/metrics").text
    assert f'millstream_engine_restarts_total{{model_name="{other}"}} 1.0' in text
    assert f'millstream_engine_restarts_total{{model_name="{one}"}} 0.0' in text
