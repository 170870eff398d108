"""Health, metrics, draining, signals, origins: what operators see."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from millstream.engine.protocol import EngineStats
from millstream.ir.deltas import Content, Error, Finish, Start, Usage
from millstream.ir.errors import engine_failed, engine_lost
from millstream.ir.provider import DeltaStream
from millstream.ir.request import Request
from millstream.server.app import create_app
from millstream.server.binding import bind
from support.live import Live, serving
from support.provider import ScriptedEngine, ScriptedProvider, Step
from support.waiting import wait_until
from support.wire import chunks, legal

CHAT = "/v1/chat/completions"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


def test_health_and_readiness() -> None:
    with serving(health_seconds=0.05) as live, live.client() as client:
        expected = {"status": "ready", "models": ["tiny"], "running": 1, "waiting": 2, "kv_blocks_used": 3, "steps": 4}
        for path in ("/health", "/ready"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert expected.items() <= answer.json().items()
        for broken, status, reason, live_status in (
            (engine_failed("The engine is restarting."), "restarting", "restarting", 200),
            (5.0, "silent", "did not answer within 0.05 s", 200),
            (EngineStats(outage="It ended.", restarts=1), "restarting", "It ended", 200),
            (EngineStats(running=1, idle_seconds=61), "stuck", "no step for 61 s", 200),
            (EngineStats(waiting=2, idle_seconds=61, waits={"held": 1}), "stuck", "no step for 61 s", 200),
            (engine_lost("It cannot be started."), "lost", "cannot be started", 503),
        ):
            live.engine.answer = broken
            answer = client.get("/ready")
            assert (answer.status_code, answer.json()["status"]) == (503, status)
            assert reason in answer.json()["reason"]
            assert answer.headers["retry-after"]
            answer = client.get("/health")
            assert (answer.status_code, answer.json()["status"]) == (live_status, status)
        for idle in (EngineStats(), EngineStats(waiting=3, waits={"held": 1, "paused_reader": 2})):
            live.engine.answer = msgspec.structs.replace(idle, idle_seconds=3600)
            assert client.get("/ready").status_code == 200


def metrics(live: Live) -> dict[str, float]:
    with live.client() as client:
        lines = client.get("/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_metrics() -> None:
    provider = ScriptedProvider()
    with serving(provider) as live, live.client() as client:
        assert client.post(CHAT, json={**BODY, "n": 2}).status_code == 200
        assert client.post("/v1/completions", json={"model": "tiny", "prompt": "a", "stream": True}).status_code == 200
        assert client.post(CHAT, json={**BODY, "temperature": 9}).status_code == 400
        provider.script = lambda request: [Content("a"), Error("broken")]
        client.post(CHAT, json={**BODY, "stream": True})
        found = metrics(live)
        assert found['millstream_requests_total{outcome="ok",surface="chat_completions"}'] == 1
        assert found['millstream_requests_total{outcome="ok",surface="completions"}'] == 1
        assert found['millstream_requests_total{outcome="refused",surface="chat_completions"}'] == 1
        assert found['millstream_requests_total{outcome="failed",surface="chat_completions"}'] == 1
        assert found['millstream_choices_total{reason="stop"}'] == 3
        assert found["millstream_time_to_first_token_seconds_count"] == 3
        assert found["millstream_inter_token_seconds_count"] == 3
        assert found['millstream_engine_up{model_name="tiny"}'] == 1
        assert found['millstream_requests_running{model_name="tiny"}'] == 1
        assert found['millstream_requests_waiting{model_name="tiny"}'] == 2
        assert (
            found['millstream_kv_blocks_used{model_name="tiny"}'],
            found['millstream_kv_blocks{model_name="tiny"}'],
        ) == (3, 8)
        assert found['millstream_kv_cache_usage_ratio{model_name="tiny"}'] == 3 / 8
        assert found['millstream_requests_waiting_by_reason{model_name="tiny",reason="kv_cache"}'] == 2
        assert found['millstream_requests_waiting_by_reason{model_name="tiny",reason="step_budget"}'] == 0
        assert found['millstream_draft_tokens_total{model_name="tiny"}'] == 9
        assert found['millstream_forced_tokens_total{model_name="tiny"}'] == 5
        assert found['millstream_grammars_compiled_total{model_name="tiny"}'] == 2
        assert found['millstream_grammars_reused_total{model_name="tiny"}'] == 3
        assert found['millstream_grammar_cache_bytes{model_name="tiny"}'] == 4096
        assert found['millstream_accepted_draft_tokens_total{model_name="tiny"}'] == 7
        for stage in ("queue", "prefill", "decode"):
            assert found[f"millstream_request_{stage}_seconds_count"] >= 1
        assert found['millstream_tenant_tokens_total{kind="completion",tenant=""}'] >= 2
        live.engine.answer = engine_failed("down")
        found = metrics(live)
        assert found['millstream_engine_up{model_name="tiny"}'] == 0
        assert 'millstream_requests_running{model_name="tiny"}' not in found
        assert found['millstream_draft_tokens_total{model_name="tiny"}'] == 9  # counters neither vanish nor go back
        live.engine.answer = EngineStats(outage="It ended.", draft_tokens=9, waiting=2, waits={"engine_restart": 2})
        found = metrics(live)
        assert found['millstream_engine_up{model_name="tiny"}'] == 0
        assert found['millstream_draft_tokens_total{model_name="tiny"}'] == 9
        assert found['millstream_requests_waiting_by_reason{model_name="tiny",reason="engine_restart"}'] == 2


def test_cancelled_requests_are_counted() -> None:
    provider = ScriptedProvider(lambda request: [Content("a"), 3600.0])
    with serving(provider) as live, live.client() as client:
        with client.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
            next(answer.iter_raw())
        name = 'millstream_requests_total{outcome="cancelled",surface="chat_completions"}'
        wait_until(lambda: metrics(live).get(name) == 1)


def test_draining_lets_open_streams_finish() -> None:
    go_on = threading.Event()

    def script(request: Request) -> Iterator[Step]:
        yield from (Start(1), Content("a"))
        while not go_on.is_set():
            yield 0.01
        yield from (Content("b"), Finish("stop", Usage(1, 2)))

    with serving(ScriptedProvider(script), drain_seconds=60) as live, live.client() as client, live.client() as other:
        assert other.get("/health").status_code == 200
        with client.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
            parts = answer.iter_raw()
            body = next(parts)
            live.stop()
            told = wait_until(lambda: (told := other.get("/ready").json())["status"] == "draining" and told)
            assert told["reason"] == "The server is shutting down; open requests: 1."
            assert "\nmillstream_http_requests_open 1.0\n" in other.get("/metrics").text
            refused = other.post(CHAT, json=BODY)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "shutting_down"
            assert refused.headers["retry-after"]
            go_on.set()
            body += b"".join(parts)
        assert b'"b"' in legal(body, "chat_completions")
        live.join()


class Opening(ScriptedProvider):
    """Takes forever to accept a request, as a long prompt may."""

    async def stream(self, request: Request) -> DeltaStream:
        self.requests.append(request)
        await asyncio.sleep(3600)
        raise AssertionError


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
def test_a_request_that_is_being_opened_is_told_so_too(path: str) -> None:
    provider = Opening()
    with serving(provider, drain_seconds=0.1) as live, live.client() as client:
        body = BODY if path == CHAT else {"model": "tiny", "input": "hi"}

        def stop() -> None:
            wait_until(lambda: provider.requests)
            live.stop()

        threading.Thread(target=stop).start()
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["error"]["code"] == "shutting_down"


@pytest.mark.parametrize("stops", [1, 2])
def test_what_does_not_finish_is_told_so(stops: int) -> None:
    provider = ScriptedProvider(lambda request: [Content("a"), 3600.0])
    with serving(provider, drain_seconds=0.1 if stops == 1 else 3600) as live, live.client() as client:
        whole: list[int] = []

        def ask() -> None:
            with live.client() as asking:
                whole.append(asking.post(CHAT, json=BODY).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        with client.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
            parts = answer.iter_raw()
            body = next(parts)
            wait_until(lambda: len(provider.requests) == 2)
            for _ in range(stops):
                live.stop()
            body += b"".join(parts)
        assert chunks(legal(body, "chat_completions"))[-1]["error"]["code"] == "shutting_down"
        asking.join(20)
        assert whole == [503]
        live.join()
        assert provider.closed == 2


SERVE = """
import sys
from support.provider import ScriptedEngine, ScriptedProvider
from millstream.ir.deltas import Content
from millstream.server.app import create_app
from millstream.server.binding import bind
from millstream.server.run import HttpServer
from millstream.server.settings import Settings
import asyncio
sock = bind("127.0.0.1", 0)
app = create_app(ScriptedProvider(lambda request: [Content("a"), 3600.0]), ScriptedEngine().stats)
ready = lambda: print(sock.getsockname()[1], flush=True)
asyncio.run(HttpServer(app, sock, Settings(drain_seconds=3600), on_ready=ready).run())
"""


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGINT, signal.SIGINT]])
def test_signals(signals: list[int]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        client = socket.create_connection(("127.0.0.1", port), timeout=20)
        if len(signals) == 2:  # an open stream would keep the drain waiting
            body = json.dumps({**BODY, "stream": True}).encode()
            request = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            client.sendall(request + body)
            client.recv(4096)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False, verify=False) as watching:
            watching.get("/ready")  # a connection that is there already
            for number in signals[:-1]:
                process.send_signal(number)  # two that come at once are one
                wait_until(lambda: watching.get("/ready").json()["status"] == "draining")
            process.send_signal(signals[-1])
        _, errors = process.communicate(timeout=60)
        client.close()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert errors == b""


def test_a_taken_port_is_said_in_one_line() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"Cannot listen on 127.0.0.1:{port}: Address already in use"):
            bind("127.0.0.1", port)
    with pytest.raises(OSError, match=r"Cannot listen on nowhere.invalid:80: "):
        bind("nowhere.invalid", 80)


def test_origins() -> None:
    page = {"origin": "http://page.example"}
    ask = {**page, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    with serving(allow_origins=("http://page.example",)) as live, live.client() as client:
        assert client.options(CHAT, headers=ask).headers["access-control-allow-origin"] == "http://page.example"
        refused = client.post(CHAT, json={}, headers=page)
        assert refused.status_code == 400
        assert refused.headers["access-control-allow-origin"] == "http://page.example"
        other = client.get("/v1/models", headers={"origin": "http://other.example"})
        assert "access-control-allow-origin" not in other.headers


def test_a_client_that_never_reads_is_dropped() -> None:
    def endless(request):
        while True:
            yield Content("a" * 1000)

    provider = ScriptedProvider(endless)
    with serving(provider, stall_seconds=0.2) as live:
        body = json.dumps({**BODY, "stream": True}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        sock = live.raw(head + body)
        wait_until(lambda: provider.closed)
        assert provider.closed == 1
        sock.close()


def test_a_failure_is_logged_under_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    provider = ScriptedProvider()
    provider.refuse = ValueError("secret")  # type: ignore[assignment]
    with caplog.at_level(logging.INFO), serving(provider, access_log=True) as live, live.client() as client:
        answer = client.post(CHAT, json=BODY, headers={"x-request-id": "abc"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert any("abc" in record.getMessage() and record.exc_info for record in caplog.records)
    assert any(re.fullmatch(rf"POST {CHAT} 500 \d+\.\d{{3}}s", record.getMessage()) for record in caplog.records)


def test_the_front_page_names_the_paths() -> None:
    with serving() as live, live.client() as client:
        paths = client.get("/").json()["paths"]
        assert paths["chat"] == CHAT
        assert paths["completions"] == "/v1/completions"


class OneOfTwo(ScriptedEngine):
    info = None
    pid = 0
    leaving = False

    def __init__(self, model: str) -> None:
        super().__init__()
        self.model = model


class Two:
    """Two engines; the default one is first."""

    def __init__(self) -> None:
        self.first, self.second = OneOfTwo("one"), OneOfTwo("two")

    def engines(self) -> list[OneOfTwo]:
        return [self.first, self.second]


async def test_of_several_engines_the_default_counts_and_all_are_told() -> None:
    engines = Two()
    app = create_app(ScriptedProvider(), engines)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

        async def told(path: str) -> tuple[int, str, list[str]]:
            answer = await client.get(path)
            body = answer.json()
            return answer.status_code, body["status"], [engine["status"] for engine in body["engines"]]

        body = (await client.get("/ready")).json()
        assert [engine["model"] for engine in body["engines"]] == ["one", "two"]
        assert (body["running"], body["waits"], body["engines"][1]["running"]) == (2, {"kv_cache": 4}, 1)
        engines.second.answer = engine_lost("gone")
        assert await told("/ready") == (200, "ready", ["ready", "lost"])
        engines.first.answer = engine_failed("It ended.")
        assert await told("/ready") == (503, "restarting", ["restarting", "lost"])
        assert (await told("/health"))[0] == 200
        engines.second.answer, engines.first.answer = EngineStats(running=7), engine_lost("gone")
        assert await told("/ready") == (503, "lost", ["lost", "ready"])
        assert (await told("/health"))[0] == 200  # it serves the other
        text = (await client.get("/metrics")).text
        assert 'millstream_engine_up{model_name="one"} 0.0' in text
        assert 'millstream_engine_up{model_name="two"} 1.0' in text
        assert 'millstream_requests_running{model_name="two"} 7.0' in text
        engines.second.answer = engine_lost("gone")
        assert await told("/health") == (503, "lost", ["lost", "lost"])
