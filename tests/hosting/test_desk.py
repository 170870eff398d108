"""The operator's routes about models, on a host over scripted engines and a model folder of the test's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from millstream.admin.views import ModelView
from millstream.hosting.desk import ModelDesk
from millstream.hosting.host import ModelHost
from millstream.hosting.pulls import Pulls
from millstream.models.catalogue import CatalogueModel, ModelUnavailable, OnProgress, Progress, WheelPart
from millstream.server.app import create_app
from support.hosted import ScriptedOpener, host_of, settled
from support.waiting import until, until_told

ADMIN = "/v1/admin/models"
TINY = CatalogueModel(
    name="tiny",
    title="Tiny",
    license="Apache-2.0",
    filename="tiny.Q4.gguf",
    size=8,
    sha256="00" * 32,
    parts=(WheelPart("tiny==1.0", ".gguf", 100),),
)


class Fetching:
    """In place of `fetch_model`: tells 40 bytes, waits for `goon`, and then puts the file there."""

    def __init__(self) -> None:
        self.goon = threading.Event()
        self.failure: Exception | None = None
        self.calls = 0

    def __call__(self, model: CatalogueModel, folder: Path | None, *, on_progress: OnProgress) -> Path:
        self.calls += 1
        while not self.goon.wait(0.001):
            on_progress(Progress("downloading", 40, 100))
        if self.failure is not None:
            raise self.failure
        assert folder is not None
        path = folder / model.filename
        path.write_bytes(b"x" * model.size)
        return path


class World:
    """An app over a host that serves ``alpha``, and the files ``mine.gguf`` and ``bad file.gguf``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("mine", "bad file", "large", ".hidden"):
            (folder / f"{name}.gguf").write_bytes(b"GGUF")
        self.fetching = Fetching()
        self.host: ModelHost
        self.opener: ScriptedOpener
        self.client: httpx.AsyncClient

    async def start(self) -> None:
        self.host, self.opener = await host_of("alpha")
        self.pulls = Pulls(self.folder, self.fetching)
        self.desk = ModelDesk(self.host, self.pulls, folder=self.folder, catalogue=(TINY,))
        app = create_app(self.host, self.host, desk=self.desk)
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def stop(self) -> None:
        self.fetching.goon.set()
        await self.client.aclose()
        await self.pulls.close()
        await self.host.close()

    async def views(self) -> dict[str, ModelView]:
        answer = await self.client.get(ADMIN)
        assert answer.status_code == 200
        views = msgspec.json.decode(answer.content, type=dict[str, list[ModelView]])["data"]
        return {view.name: view for view in views}

    async def post(self, verb: str, name: Any, status: int = 202) -> Any:
        answer = await self.client.post(f"{ADMIN}/{verb}", json={"model": name})
        assert answer.status_code == status, answer.text
        return msgspec.json.decode(answer.content, type=ModelView) if status == 202 else answer.json()["error"]

    async def until(self, name: str, state: str, also: Callable[[ModelView], bool] = lambda view: True) -> ModelView:
        def there(views: Mapping[str, ModelView]) -> bool:
            return views[name].state == state and also(views[name])

        return (await until_told(self.views, there, f"{name} is not {state}", pause=0.001))[name]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.start()
    yield world
    await world.stop()


async def test_all_models_are_told_the_default_first(world: World) -> None:
    views = await world.views()
    assert [(view.name, view.state) for view in views.values()] == [
        ("alpha", "loaded"),
        ("bad-file", "on_disk"),
        ("large", "on_disk"),
        ("mine", "on_disk"),
        ("tiny", "available"),
    ]
    assert views["alpha"].default
    assert (views["alpha"].context_length, views["alpha"].kv_tokens) == (2048, 4096)
    assert (views["tiny"].license, views["tiny"].fetch_bytes, views["tiny"].file_bytes) == ("Apache-2.0", 100, 8)
    assert views["mine"].file_bytes == 4


async def test_a_model_is_loaded_answers_and_is_unloaded(world: World) -> None:
    world.opener.loading.clear()
    assert (await world.post("load", "mine")).state == "loading"
    assert (await world.post("load", "mine")).state == "loading"
    body = {"model": "mine", "messages": [{"role": "user", "content": "hi"}]}
    for path, extra in (("/v1/chat/completions", {}), ("/v1/messages", {"max_tokens": 9})):
        answer = await world.client.post(path, json={**body, **extra})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "being loaded" in answer.json()["error"]["message"]
        assert (answer.json().get("type") == "error") == (path == "/v1/messages")
    world.opener.loading.set()
    await world.until("mine", "loaded")
    assert [card["id"] for card in (await world.client.get("/v1/models")).json()["data"]] == ["alpha", "mine"]
    answer = await world.client.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "mine"
    assert answer.json()["model"] == "mine"
    await world.post("unload", "mine")
    await world.until("mine", "on_disk")
    answer = await world.client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def test_while_it_finishes_a_model_is_unloading(world: World) -> None:
    world.opener.gate.clear()
    body = {"model": "alpha", "messages": [{"role": "user", "content": "hi"}]}
    running = asyncio.create_task(world.client.post("/v1/chat/completions", json=body))
    await until(lambda: world.opener.engines["alpha"].requests)
    view = await world.post("unload", "alpha")
    assert (view.state, view.open_requests, view.default) == ("unloading", 1, False)
    assert (await world.post("load", "alpha", 409))["code"] == "model_unloading"
    ready = await world.client.get("/ready")
    assert (ready.status_code, ready.json()["status"]) == (503, "no_model")
    (engine,) = ready.json()["engines"]
    assert (engine["model"], engine["status"]) == ("alpha", "unloading")
    assert "no new requests" in engine["reason"]
    assert (await world.client.get("/health")).status_code == 200
    world.opener.gate.set()
    assert (await running).json()["choices"][0]["message"]["content"] == "alpha"
    await settled(world.host)
    assert "alpha" not in await world.views()  # it is no file of the folder
    ready = await world.client.get("/ready")
    assert (ready.status_code, ready.json()["status"], ready.json()["models"]) == (503, "no_model", [])
    assert (await world.client.get("/health")).status_code == 200
    for path, body in (
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [1]}),
        ("/apply-template", {"messages": [{"role": "user", "content": "hi"}]}),
    ):
        answer = await world.client.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_model")


async def test_a_file_of_the_command_line_can_be_loaded_again(world: World, tmp_path: Path) -> None:
    from support.hosted import source

    path = tmp_path / "elsewhere"
    path.mkdir()
    (path / "alpha.gguf").write_bytes(b"GGUF")
    world.desk.remember(source("alpha")._replace(path=path / "alpha.gguf"))
    await world.post("unload", "alpha")
    await world.until("alpha", "on_disk")
    await world.post("load", "alpha")
    assert (await world.until("alpha", "loaded")).default


async def test_a_load_that_fails_is_told(world: World) -> None:
    await world.post("load", "bad-file")
    view = await world.until("bad-file", "failed")
    assert view.error == "the file is bad"
    error = await world.post("load", "large", 409)
    assert (error["code"], "not enough memory" in error["message"]) == ("model_not_loadable", True)
    assert (await world.views())["large"].state == "on_disk"
    await world.post("unload", "bad-file")
    assert (await world.views())["bad-file"].error is None


async def test_a_pull_with_progress(world: World) -> None:
    assert (await world.post("load", "tiny", 409))["code"] == "model_not_here"
    assert (await world.post("pull", "tiny")).state == "pulling"
    await world.post("pull", "tiny")
    view = await world.until("tiny", "pulling", lambda view: view.fetched_bytes > 0)
    assert (view.fetched_bytes, view.fetch_bytes) == (40, 100)
    world.fetching.goon.set()
    view = await world.until("tiny", "on_disk")
    assert (view.file_bytes, world.fetching.calls) == (8, 1)
    assert (await world.post("pull", "tiny")).state == "on_disk"
    await world.post("load", "tiny")
    await world.until("tiny", "loaded")


async def test_a_pull_is_cancelled(world: World) -> None:
    await world.post("pull", "tiny")
    view = await world.post("pull/cancel", "tiny")
    assert (view.state, view.error) == ("available", None)
    assert (await world.post("pull/cancel", "tiny", 409))["code"] == "not_pulling"
    await world.post("pull", "tiny")
    world.fetching.goon.set()
    await world.until("tiny", "on_disk")


async def test_a_pull_that_is_asked_for_while_one_is_being_stopped_begins_after_it(world: World) -> None:
    """The last word counts."""
    await world.post("pull", "tiny")
    stopping = asyncio.create_task(world.pulls.cancel("tiny"))
    await asyncio.sleep(0)
    assert world.pulls.stopping("tiny")
    world.pulls.start(TINY)
    await stopping
    world.fetching.goon.set()
    await world.until("tiny", "on_disk")


@pytest.mark.parametrize(
    ("failure", "words"), [(ModelUnavailable("no network"), "no network"), (ValueError("x"), "internal error")]
)
async def test_a_pull_that_fails_says_why(world: World, failure: Exception, words: str) -> None:
    world.fetching.failure = failure
    world.fetching.goon.set()
    await world.post("pull", "tiny")
    view = await world.until("tiny", "available")
    assert words in (view.error or "")
    world.fetching.failure = None
    await world.post("pull", "tiny")
    assert (await world.until("tiny", "on_disk")).error is None


@pytest.mark.parametrize("verb", ["load", "unload", "pull", "pull/cancel"])
async def test_a_name_is_looked_up_and_never_a_path(world: World, verb: str, tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside.gguf"
    outside.write_bytes(b"GGUF")
    for name in (
        str(outside),
        "../outside",
        "../outside.gguf",
        "mine.gguf",
        "bad file",
        ".hidden",
        "",
        "a\0b",
        "x" * 9999,
    ):
        error = await world.post(verb, name, 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "outside" not in error["message"].split("Known:")[1]


async def test_bad_bodies_are_refused(world: World) -> None:
    for body, code in (
        (b"", "invalid_json"),
        (b"[]", None),
        (b'{"model": 1}', None),
        (b"{}", "missing_required_parameter"),
        (b'{"model": null}', "missing_required_parameter"),
        (b'{"model": "mine", "force": true}', "unknown_parameter"),
    ):
        answer = await world.client.post(f"{ADMIN}/load", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, body
        if code is not None:
            assert answer.json()["error"]["code"] == code
    assert (await world.client.get(f"{ADMIN}/load")).status_code == 405
    assert (await world.post("unload", "mine", 409))["code"] == "model_not_loaded"
    assert (await world.post("pull", "mine")).state == "on_disk"


async def test_the_routes_are_described(world: World) -> None:
    document = (await world.client.get("/openapi.json")).json()
    for path in (ADMIN, f"{ADMIN}/load", f"{ADMIN}/unload", f"{ADMIN}/pull", f"{ADMIN}/pull/cancel"):
        (operation,) = document["paths"][path].values()
        assert operation["summary"] != path
        assert {"200", "202"} & set(operation["responses"])
        assert ("requestBody" in operation) == (path != ADMIN)
