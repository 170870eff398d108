"""Clients that stop reading: memory stays flat, others are answered, and who stalls for too long is cut."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from soak.storm import memory
from support.served import Served, serve
from support.tiny_models import TinyShape, build_tiny_model

TOKENS = 6000
"""So many that a server which computes and keeps them all shows."""

_SECONDS = 600
"""A busy machine may take long."""
BODY = {"model": "tiny", "prompt": "once", "max_tokens": TOKENS, "ignore_eos": True, "stream": True, "logprobs": 5}


def stalled(server: Served, number: int) -> socket.socket:
    """A connection that asks for a long answer and reads nothing of it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", urlsplit(server.url).port))
    body = json.dumps({**BODY, "seed": number}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    sock.sendall(head.encode() + body)
    return sock


def until_paused(server: Served, count: int) -> dict[str, int]:
    """Counts once so many sequences are paused and nothing runs."""
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        found = server.health().json()
        if found.get("waits", {}).get("paused_reader") == count and not found["running"]:
            return dict(found)
        time.sleep(0.2)
    raise AssertionError(f"the readers are not paused: {found}")


@pytest.mark.slow
@pytest.mark.parametrize("readers", [40, pytest.param(200, marks=pytest.mark.thorough)])
def test_many_stalled_readers(readers: int, tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "tiny.gguf", shape=TinyShape(context=8192))
    options = ("--model-name", "tiny", "--max-queue", "300", "--kv-cache", "16384t", "--stall-timeout", "4000")
    with serve(model, *options) as server:
        socks = [stalled(server, 0)]
        until_paused(server, 1)
        before = memory(server)
        try:
            socks += [stalled(server, number) for number in range(1, readers)]
            found = until_paused(server, readers)
            after = memory(server)
            answer = httpx.post(
                f"{server.url}/v1/completions",
                json={**BODY, "stream": False, "max_tokens": 5},
                timeout=_SECONDS,
                trust_env=False,
            )
            assert answer.status_code == 200
            assert found["kv_blocks_used"] == 0
            # A reader costs its connection and what waits, 128 tokens with their log probabilities: about 330 KiB.
            # One for whom the whole answer is kept costs more than ten times as much.
            assert after["api"] - before["api"] < readers * 700 * 1024
            assert after["engine"] - before["engine"] < 64 << 20
        finally:
            for sock in socks:
                sock.close()
        server.wait_idle(_SECONDS)


@pytest.mark.slow
def test_who_stalls_for_too_long_is_cut_without_an_end(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "tiny.gguf", shape=TinyShape(context=8192))
    with serve(model, "--model-name", "tiny", "--stall-timeout", "1") as server, stalled(server, 0) as sock:
        until_begun(server)
        server.wait_idle(_SECONDS)
        sock.settimeout(_SECONDS)
        received = b""
        try:
            while piece := sock.recv(1 << 16):
                received += piece
        except ConnectionResetError:
            pass
        assert b"data: {" in received
        assert b"[DONE]" not in received
        assert b'"finish_reason":"length"' not in received


def until_begun(server: Served) -> None:
    """Wait for the first step: before it the server is idle too."""
    until = time.monotonic() + _SECONDS
    while not server.health().json()["steps"]:
        assert time.monotonic() < until, "the request does not begin"
        time.sleep(0.05)
