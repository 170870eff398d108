"""The API benchmark: it measures a process of its own, and a wrong answer is no result."""

from __future__ import annotations

import json
import os
import time

import pytest

from millstream.bench.api import ApiOptions, Target, run_api_benchmark
from millstream.bench.api_client import body_of
from millstream.bench.api_report import render_api
from millstream.bench.api_script import MODEL
from millstream.bench.api_server import api_server
from millstream.bench.api_surfaces import API_SURFACES
from millstream.bench.errors import BenchError
from millstream.bench.system import cpu_seconds


def test_a_small_run_beside_another_server() -> None:
    """The other one is of our own kind, but refuses what it was not written for: that is told, not measured."""
    options = ApiOptions(streams=(2,), tokens=4, sample_tokens=64, samples=1)
    report = run_api_benchmark(options)
    assert [(case.surface, case.streams) for case in report.cases] == [(name, 2) for name in API_SURFACES]
    assert all(case.requests_per_second > 0 for case in report.cases)
    # Cost is a difference, and that of so few tokens may be noise; that both parts make up the whole is not.
    assert all(case.token_us[0] * case.tokens + case.request_us[0] > 0 for case in report.cases)
    assert render_api(report)
    with api_server() as (port, pid), pytest.raises(BenchError, match="refused"):
        run_api_benchmark(options, compare=Target(url=f"http://127.0.0.1:{port}", pid=pid, model=MODEL))


def test_faults_of_a_stream_are_seen() -> None:
    chat = API_SURFACES["chat"]
    piece = b"data: " + json.dumps({"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}).encode()
    end = b"data: " + json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]}).encode()
    assert chat.read(b"\n\n".join([piece, piece, end, b"data: [DONE]\n\n"])) == ("aa", 2, 1, True)
    assert chat.read(b"\n\n".join([end, piece, end, b"data: [DONE]\n\n"])).ends == 2
    assert not chat.read(b"\n\n".join([end, piece, b"data: [DONE]\n\n"])).ends_last
    for body in (end, b"data: [DONE]\n\n" + end, b"data: {\n\ndata: [DONE]\n\n"):
        with pytest.raises(BenchError):
            chat.read(body)


def test_broken_chunks_are_seen() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    assert body_of(head + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n") == b"abc"
    for rest in (b"", b"3\r\nab\r\n0\r\n\r\n", b"2\r\nab\r\n0\r\n\r\nx", b"zz\r\n"):
        with pytest.raises(BenchError):
            body_of(head + rest)


def test_processor_time() -> None:
    before, mine = cpu_seconds(os.getpid()), time.process_time()
    while time.process_time() < mine + 0.05:
        pass
    assert cpu_seconds(os.getpid()) > before
    with pytest.raises(OSError, match=r"."):
        cpu_seconds(2**22 + 1)
