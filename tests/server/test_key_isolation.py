"""Keys and the prefix cache of a real scheduler: what one has computed is nothing to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from millstream.engine.client import EngineProcess
from millstream.engine.config import EngineConfig
from millstream.pipeline.local import LocalProvider
from millstream.server.app import create_app
from millstream.server.settings import Settings
from support.keyed import Keys
from support.scripted_model import TinyTokenizer


async def test_no_key_hits_the_prefixes_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath / "tests"))  # where the worker is
    keys = Keys(tmp_path)
    for name in "ab":
        keys.add(name)
    config = EngineConfig(model_path=str(tmp_path / "processes"), model_name="plain")
    engine = await EngineProcess.start(config, worker="support.scripted_worker")
    try:
        provider = LocalProvider(engine, tokenizer=TinyTokenizer(), template=None, name="tiny")
        app = create_app(provider, engine.stats, Settings(keys_path=keys.path))
        transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            async def cached(name: str) -> int:
                body: dict[str, Any] = {"model": "tiny", "prompt": [list(range(5, 25))], "max_tokens": 2}
                answer = await client.post("/v1/completions", json=body, headers=keys.header(name))
                assert answer.status_code == 200, answer.text
                hits: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
                return hits

            assert await cached("a") == 0
            own = await cached("a")
            assert own >= 16
            assert await cached("b") == 0
            assert [await cached("a"), await cached("b")] == [own, own]
            keys.revoke("a")
            keys.add("a")
            assert await cached("a") == 0
    finally:
        await engine.close()
