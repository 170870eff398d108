"""Keys and the prefix cache of a real scheduler: what one has computed is nothing to the other."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from millstream.engine.client import EngineProcess
from millstream.engine.config import EngineConfig
from millstream.models.template import JinjaChatTemplate
from millstream.pipeline.local import LocalProvider
from millstream.server.app import create_app
from millstream.server.settings import Settings
from support.conversation import PATHS, SURFACES, TEMPLATE, body
from support.keyed import Keys
from support.readers import read
from support.scripted_model import TinyTokenizer


async def completion(client: httpx.AsyncClient, header: dict[str, str], stream: bool) -> int:
    wire: dict[str, Any] = {"model": "tiny", "prompt": [list(range(5, 55))], "max_tokens": 2, "stream": stream}
    if stream:
        wire["stream_options"] = {"include_usage": True}
    answer = await client.post("/v1/completions", json=wire, headers=header)
    assert answer.status_code == 200, answer.text
    frames = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if "{" in line]
    hits: int = frames[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    return hits


async def turn(surface: str, client: httpx.AsyncClient, header: dict[str, str], stream: bool) -> int:
    wire = body(surface, stream=stream, text="xyz " * 12, max_tokens=2)
    answer = await client.post(PATHS[surface], json=wire, headers=header)
    seen = read(surface, answer.status_code, answer.content, stream=stream)
    assert seen.usage is not None, answer.text
    return seen.usage[2]


ASKS = {"completions": completion, **{surface: partial(turn, surface) for surface in SURFACES}}
"""Tokens that the prefix cache had, as the answer tells."""


@pytest.mark.parametrize("surface", ASKS)
async def test_no_key_hits_the_prefixes_of_another(
    surface: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))  # where the worker is
    keys = Keys(tmp_path)
    for name in "ab":
        keys.add(name)
    config = EngineConfig(model_path=str(tmp_path / "processes"), model_name="plain")
    engine = await EngineProcess.start(config, worker="support.scripted_worker")
    try:
        template = JinjaChatTemplate(TEMPLATE)
        provider = LocalProvider(engine, tokenizer=TinyTokenizer(), template=template, name="tiny")
        app = create_app(provider, engine.stats, Settings(keys_path=keys.path))
        transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            async def cached(name: str, *, stream: bool = False) -> int:
                return await ASKS[surface](client, keys.header(name), stream)

            assert await cached("a") == 0
            own = await cached("a")
            assert own >= 40
            assert await cached("b", stream=True) == 0
            assert [await cached("a", stream=True), await cached("b")] == [own, own]
            keys.revoke("a")
            keys.add("a")
            assert await cached("a") == 0
    finally:
        await engine.close()
