"""A real engine that is killed, or whose readers stop: every request has the answer of an undisturbed run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from millstream.engine import streams
from millstream.engine.client import EngineProcess
from millstream.engine.config import EngineConfig
from millstream.engine.protocol import (
    EngineStats,
    SamplingParams,
    SequenceView,
    TokenAlternatives,
    TokenDelta,
    TokenRequest,
    TokenStream,
)
from millstream.engine.restarts import Supervision
from millstream.ir.request import Tool
from millstream.parsing.registry import TOOL_FORMATS
from support.cores import THREADS
from support.real_models import DEFAULT_MODEL, real_model
from support.waiting import PATIENCE

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "parts": {"type": "array", "items": {"type": "number"}},
    },
    "required": ["name", "parts"],
}
TOOLS = (Tool("get_weather", parameters=SCHEMA, strict=True), Tool("get_time"))

Answer = tuple[list[int], list[TokenAlternatives], list[TokenAlternatives], bytes | None, str | None]
"""Tokens, their log probabilities, those of the prompt, a pooled vector, the finish."""


def requests(run: str) -> dict[str, TokenRequest]:
    """One of each kind; ``run`` tells ids apart."""
    prompt = [1, *range(500, 540)]
    drawn = SamplingParams(temperature=0.9, seed=7, repetition_penalty=1.1)
    schema = json.dumps({"grammars": [{"json_schema": SCHEMA}]})
    calls = json.dumps({"grammars": [{"lark_grammar": TOOL_FORMATS["hermes"].constraint(TOOLS, required=True)}]})

    def ask(name: str, tokens: list[int], sampling: SamplingParams, most: int, **how: object) -> TokenRequest:
        return TokenRequest(f"{name}-{run}", tokens, sampling, most, stop_ids=(2,), **how)  # type: ignore[arg-type]

    greedy = SamplingParams(temperature=0.0)
    asked = [
        ask("drawn", prompt, drawn, 16),
        ask("choice0", [*prompt, 9], drawn, 12, choice=0),
        ask("choice1", [*prompt, 9], drawn, 12, choice=1),
        ask("logprobs", [*prompt, 10], SamplingParams(temperature=0.0, logprobs=2), 12),
        ask("schema", [*prompt, 11], drawn, 16, grammar=schema),
        ask("tools", [*prompt, 12], greedy, 16, grammar=calls),
        ask("long", [1, *(300 + 7 * k % 5000 for k in range(480))], greedy, 12),
        ask("vector", [*prompt, *prompt, 13], greedy, 0, pooling="mean"),
        ask("scores", [1, *range(700, 820)], greedy, 4, prompt_logprobs=1),
    ]
    return {request.id.split("-")[0]: request for request in asked}


@asynccontextmanager
async def running(context_length: int, kv_bytes: int) -> AsyncIterator[EngineProcess]:
    config = EngineConfig(
        model_path=str(real_model(DEFAULT_MODEL)),
        model_name="m",
        context_length=context_length,
        kv_bytes=kv_bytes,
        threads=THREADS,
    )
    engine = await EngineProcess.start(config, supervision=Supervision(first_delay=0.05))
    try:
        yield engine
    finally:
        await engine.close()


async def read(stream: TokenStream) -> Answer:
    deltas: list[TokenDelta] = [delta async for delta in stream]
    return (
        [token for delta in deltas for token in delta.tokens],
        [entry for delta in deltas for entry in delta.logprobs],
        [entry for delta in deltas for entry in delta.prompt_logprobs],
        deltas[-1].embedding,
        deltas[-1].finish,
    )


async def ask_all(engine: EngineProcess, run: str) -> dict[str, asyncio.Task[Answer]]:
    streams = {name: await engine.submit(request) for name, request in requests(run).items()}
    return {name: asyncio.create_task(read(stream)) for name, stream in streams.items()}


async def ask_until(
    engine: EngineProcess, run: str, name: str, there: Callable[[SequenceView], bool]
) -> dict[str, asyncio.Task[Answer]]:
    """Ask all until one is seen somewhere: this process may stand still for all that one takes."""
    for attempt in range(20):
        tasks = await ask_all(engine, f"{run}{attempt}")
        if await seen(engine, f"{name}-{run}{attempt}", there):
            return tasks
        await asyncio.gather(*tasks.values())
    raise AssertionError(f"{name} is never seen there")


async def seen(engine: EngineProcess, name: str, there: Callable[[SequenceView], bool]) -> bool:
    """Wait until a sequence is somewhere; False: it ended without being seen there."""
    while views := [view for view in await engine.sequences() if view.id == name]:
        if there(views[0]):
            return True
        await asyncio.sleep(0.005)
    return False


async def back(engine: EngineProcess, restarts: int) -> EngineStats:
    for _ in range(6000):
        stats = await engine.stats()
        if stats.restarts == restarts and stats.outage is None:
            return stats
        await asyncio.sleep(0.01)
    raise AssertionError("the engine does not come back")


def children() -> set[int]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return {int(each) for each in found}


async def kill_while_loading(engine: EngineProcess) -> None:
    """End the engine, and then the process that is to follow it before it is ready."""
    others = children() - {engine.pid}
    os.kill(engine.pid, signal.SIGKILL)
    old = engine.pid
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if new := children() - others - {old}:
            os.kill(new.pop(), signal.SIGKILL)
            return
        await asyncio.sleep(0)  # it is seen before what it says is read
    raise AssertionError("no process follows")


async def test_whatever_it_does_when_it_is_killed(record_property: Callable[[str, object], None]) -> None:
    async with running(2048, 128 << 20) as engine:
        quiet = {name: await answer for name, answer in (await ask_all(engine, "quiet")).items()}
        assert quiet["vector"][3] is not None
        assert len(quiet["scores"][2]) == 120

        first = await ask_until(engine, "first", "long", lambda view: view.state == "prefill" and view.prompt_done > 0)
        os.kill(engine.pid, signal.SIGKILL)
        await back(engine, 1)
        await kill_while_loading(engine)  # hardly anything has run since the last: suspects are tried alone
        await back(engine, 2)
        assert {name: await answer for name, answer in first.items()} == quiet

        second = await ask_until(engine, "second", "schema", lambda view: view.generated > 3)
        os.kill(engine.pid, signal.SIGKILL)
        assert {name: await answer for name, answer in second.items()} == quiet
        stats = await back(engine, 3)
        assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 0, 0)
        assert engine.recovery is not None
        record_property("seconds without an engine", round(engine.recovery.seconds, 2))
        record_property("seconds of them to start", round(engine.recovery.start_seconds, 2))


async def test_a_reader_that_comes_back_gets_what_it_would_have_got(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sequence was paused and its blocks were taken: all of it is computed again."""
    unread = 48
    monkeypatch.setattr(streams, "UNREAD_TOKENS", unread)
    async with running(512, 12 << 20) as engine:
        drawn = SamplingParams(temperature=0.9, seed=3)
        asked = TokenRequest("a", [1, *range(500, 530)], drawn, unread + 100)
        for attempt in range(20):  # it may come to its end while this process stands still
            stream = await engine.submit(msgspec.structs.replace(asked, id=f"a{attempt}"))
            if await seen(engine, f"a{attempt}", lambda view: view.wait_reason == "paused_reader"):
                break
        else:
            raise AssertionError("its reader is never waited for")
        other = TokenRequest("b", [1, *(300 + 7 * k % 5000 for k in range(480))], SamplingParams(), 2)
        assert len(other.prompt) + len(asked.prompt) + unread > engine.info.kv_tokens
        await read(await engine.submit(other))
        late = await read(stream)
        assert len(late[0]) == asked.max_tokens
        assert late == await read(await engine.submit(msgspec.structs.replace(asked, id="alone")))
