"""Two real models in one server: both answer at once, one comes and goes, and what went leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from millstream.engine.memory import resident_bytes
from support.real_models import DEFAULT_MODEL, real_model
from support.served import Served, serve

SMOLLM2, GEMMA = "smollm2-135m-instruct", "gemma-3-270m"
PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Both are served from the start; gemma is in the model folder as well."""
    home = tmp_path_factory.mktemp("home")
    (home / "models").mkdir()
    gemma = home / "models" / "gemma-3-270m.Q4_K_M.gguf"
    gemma.symlink_to(real_model("gemma3"))
    before = os.environ.get("MILLSTREAM_HOME")
    os.environ["MILLSTREAM_HOME"] = str(home)
    try:
        with serve(real_model(DEFAULT_MODEL), str(gemma), "--ctx", "2048", "--kv-cache", "4096t") as server:
            yield server
    finally:
        os.environ.pop("MILLSTREAM_HOME")
        if before is not None:
            os.environ["MILLSTREAM_HOME"] = before


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=300, trust_env=False, verify=False) as client:
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
def test_models_come_and_go(served: Served, client: httpx.Client) -> None:
    assert [card["id"] for card in client.get("/v1/models").json()["data"]] == [SMOLLM2, GEMMA]
    alone = {model: complete(client, model) for model in (SMOLLM2, GEMMA)}
    assert "Paris" in alone[SMOLLM2]
    assert alone[SMOLLM2] != alone[GEMMA]
    with ThreadPoolExecutor(6) as threads:
        models = [SMOLLM2, GEMMA] * 3
        assert list(threads.map(lambda model: complete(client, model), models)) == [alone[model] for model in models]

    resident = []
    for _ in range(3):
        admin(client, "unload", GEMMA)
        until(client, GEMMA, "on_disk")
        assert len(served.engine_pids()) == 1
        assert client.post("/v1/completions", json={"model": GEMMA, "prompt": "a"}).status_code == 404
        assert complete(client, SMOLLM2) == alone[SMOLLM2]
        resident.append(resident_bytes(served.process.pid))
        admin(client, "load", GEMMA)
        until(client, GEMMA, "loaded")
        assert complete(client, GEMMA) == alone[GEMMA]
        assert len(served.engine_pids()) == 2
    # A tokenizer of 262,144 tokens takes some 100 MB: it must not stay each time. The heap settles over some cycles.
    assert resident[-1] - resident[0] < 80 << 20, resident


@pytest.mark.slow
def test_the_crash_of_one_engine_is_not_the_others(served: Served, client: httpx.Client) -> None:
    alone = complete(client, SMOLLM2)
    before = served.engine_pids()
    os.kill(before[-1], signal.SIGKILL)
    assert complete(client, SMOLLM2) == alone
    eventually(lambda: set(served.engine_pids()) - set(before), "the engine is started again")
    eventually(lambda: client.get("/ready").json()["engines"][1]["status"] == "ready", "it is ready")
    restarts = [engine["restarts"] for engine in client.get("/ready").json()["engines"]]
    assert restarts == [0, 1]
    text = client.get("/metrics").text
    assert f'millstream_engine_restarts_total{{model_name="{GEMMA}"}} 1.0' in text
    assert f'millstream_engine_restarts_total{{model_name="{SMOLLM2}"}} 0.0' in text
