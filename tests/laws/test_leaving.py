"""Who leaves is gone with the next step: on every surface, streamed or not, wherever each of its sequences is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from millstream.engine.protocol import SamplingParams, TokenRequest
from millstream.models.template import JinjaChatTemplate
from millstream.pipeline.local import LocalProvider
from millstream.server.app import create_app
from support.conversation import PATHS, TEMPLATE, body
from support.raw_client import RawClient
from support.scripted_model import TinyTokenizer
from support.ticked import TickedEngine
from support.waiting import PATIENCE

TEXT = "xyz " * 30
COMPLETION = {"model": "tiny", "prompt": TEXT, "max_tokens": 500}
ASKS: dict[str, tuple[str, dict[str, Any], int]] = {
    **{surface: (PATHS[surface], body(surface, text=TEXT), 1) for surface in PATHS},
    "tools": (PATHS["chat"], body("chat", text=TEXT, tools=True, tool_choice="auto"), 1),
    "choices": (PATHS["chat"], {**body("chat", text=TEXT), "n": 3}, 3),
    "completions": ("/v1/completions", COMPLETION, 1),
    "choices of completions": ("/v1/completions", {**COMPLETION, "n": 3}, 3),
    "best_of": ("/v1/completions", {**COMPLETION, "n": 2, "best_of": 3}, 3),
    "batch": ("/v1/completions", {**COMPLETION, "prompt": [TEXT, "a" + TEXT], "n": 2}, 4),
    "scored echo": ("/v1/completions", {**COMPLETION, "echo": True, "logprobs": 0}, 1),
    "embeddings": ("/v1/embeddings", {"model": "tiny", "input": [TEXT, "a" + TEXT]}, 2),
}
"""Path, body, and how many sequences it becomes."""

CELLS = [
    pytest.param(ask, stream, state, id=f"{ask}-{'streamed' if stream else 'whole'}-{state}")
    for ask in ASKS
    for stream in (False, True)
    for state in ("queued", "prefill", "decode")
    if not (stream and ask in ("best_of", "embeddings"))  # these are not streamed
    and not (state == "decode" and ask == "embeddings")  # and nothing is generated there
]


async def until(there: Callable[[], bool], then: Callable[[], None] = lambda: None) -> None:
    end = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < end, "it never gets there"
        then()
        await asyncio.sleep(0.0005)


@pytest.mark.parametrize(("ask", "stream", "state"), CELLS)
async def test_who_leaves_is_gone_with_the_next_step(ask: str, stream: bool, state: str) -> None:
    path, wire, sequences = ASKS[ask]
    engine = TickedEngine(max_sequences=1 if state == "queued" else 8)
    provider = LocalProvider(
        engine, tokenizer=TinyTokenizer(), template=JinjaChatTemplate(TEMPLATE), tool_format="hermes", name="tiny"
    )
    app = create_app(provider, engine.stats)
    other = TokenRequest("other", [1, 2, 3], SamplingParams(), 4000)
    await engine.submit(other)
    engine.tick()

    client = RawClient(app, path, {**wire, "stream": True} if stream else wire)
    await until(lambda: engine.asked == 1 + sequences)
    await until(lambda: any(view.state == state for view in engine.views(without="other")), engine.tick)
    if state != "queued":  # not at the very beginning
        engine.tick()
    views = engine.views(without="other")
    assert len(views) == sequences
    assert state in {view.state for view in views}

    client.leave()
    await asyncio.wait_for(client.task, 60)
    engine.tick()
    assert engine.views(without="other") == []
    (stays,) = engine.core.sequences()
    stats = await engine.stats()
    assert (stats.running, stats.waiting) == (1, 0)
    assert stats.kv_blocks_used == -(-(len(other.prompt) + stays.generated) // 4)
    if not stream:
        assert client.sent == []
