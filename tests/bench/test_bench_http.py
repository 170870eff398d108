"""`bench http`: what is sent, what is measured of answers good and bad, and what is said of them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from millstream.bench.errors import BenchError
from millstream.bench.http.client import Server, Timings
from millstream.bench.http.figures import Limit, figures, spread
from millstream.bench.http.prompts import conversations
from millstream.bench.http.run import Plan, Target, run_http_benchmark
from millstream.bench.http.workload import BUILT_IN, Workload, load_workload
from millstream.bench.plan import read_plan
from millstream.cli.bench import bench
from millstream.cli.errors import CliError
from millstream.ir.deltas import Content, Error, Finish, Reasoning, Start, Usage
from millstream.ir.request import Request
from support.live import serving
from support.provider import CARD, ScriptedProvider, Step

SMALL = Workload(name="small", requests=4, concurrency=2, max_tokens=3)


def three_tokens(request: Request) -> list[Step]:
    tokens: list[Step] = [Reasoning("a"), 0.02, Content("b"), 0.02, Content("c")]
    return [Start(prompt_tokens=10, cached_tokens=4), *tokens, Finish("stop", Usage(10, 3, 4, 1))]


def breaks(request: Request) -> list[Step]:
    return [Start(prompt_tokens=1), Content("x"), Error("It broke.", type="server_error", code="boom", status=500)]


def test_two_servers_in_turns() -> None:
    one, other = ScriptedProvider(three_tokens), ScriptedProvider(three_tokens)
    with serving(one) as first, serving(other) as second:
        stages: list[str] = []
        targets = [Target(url=first.url), Target(url=f"127.0.0.1:{second.port}/v1", model="tiny")]
        report = run_http_benchmark(targets, Plan(workload=SMALL, rounds=2), on_stage=stages.append)
    assert [stage.endswith(first.url) for stage in stages] == [True, False, False, True]
    for server in report.servers:
        assert server.model == CARD.id
        assert [(each.requests, each.failed, each.tokens, each.cached_tokens) for each in server.rounds] == [
            (4, 0, 12, 16)
        ] * 2
        assert len(server.first_tokens) == 8
        assert len(server.inter_tokens) == 16
        assert all(gap >= 0 for gap in server.inter_tokens)
    # The same in every round for both, and something new in the next.
    sent = [{text(request) for request in provider.requests} for provider in (one, other)]
    assert sent[0] == sent[1]
    assert len(sent[0]) == 8
    assert {request.sampling.max_tokens for request in one.requests} == {3}


def text(request: Request) -> str:
    return str(request.messages)  # type: ignore[union-attr]


def test_failures_are_counted_and_the_first_is_told() -> None:
    answers = iter([breaks] + [three_tokens] * 3)
    provider = ScriptedProvider(lambda request: next(answers)(request))
    with serving(provider) as live:
        report = run_http_benchmark([Target(url=live.url)], Plan(workload=SMALL, rounds=1))
    (found,) = report.servers[0].rounds
    assert (found.requests, found.failed, found.tokens) == (4, 1, 9)
    assert found.error is not None
    assert "It broke." in found.error


def test_a_server_without_a_good_answer_is_an_error() -> None:
    with serving(ScriptedProvider(breaks)) as live, pytest.raises(BenchError, match=r"It broke\."):
        run_http_benchmark([Target(url=live.url)], Plan(workload=SMALL, rounds=1))


@contextmanager
def answering(data: bytes, *, cut: bool = False) -> Iterator[str]:
    """The URL of a server that sends ``data`` whatever it is asked."""
    ready: list[tuple[asyncio.AbstractEventLoop, int]] = []
    started, done = threading.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.transport.abort() if cut else writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ready.append((asyncio.get_running_loop(), server.sockets[0].getsockname()[1]))
        started.set()
        await done.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert started.wait(10)
    loop, port = ready[0]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)


SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (SSE + b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n', "no end"),
        (SSE + b"data: [DONE]\n\n", "without a token"),
        (SSE + b"data: {]\n\n", "no chunk"),
        (SSE + b'data: {"error":{"message":"full"}}\n\ndata: [DONE]\n\n', "full"),
        (b"HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nbusy", "HTTP 429: busy"),
        (b'HTTP/1.1 401 No\r\nContent-Length: 31\r\n\r\n{"error":{"message":"Give a key"}}', "HTTP 401: Give a key"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "connection broke"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "connection broke"),
        (b"", "connection broke"),
    ],
)
def test_bad_answers_are_told(data: bytes, said: str) -> None:
    with answering(data) as url:
        found = asyncio.run(Server(url).chat(b"{}", 10))
    assert found.error is not None
    assert said in found.error


def test_a_silent_server_is_given_up() -> None:
    with answering(SSE + b": wait\n\n") as url:
        found = asyncio.run(Server(url).chat(b"{}", 10))
        assert found.error == "the stream has no end"
    with serving(ScriptedProvider(lambda request: [Start(prompt_tokens=1), 30.0])) as live:
        body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x"}], "stream": True}).encode()
        found = asyncio.run(Server(live.url).chat(body, 0.3))
    assert found.error == "no end after 0.3 s"


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "http://127.0.0.1:many"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(BenchError):
        Server(url)


def answered(first: float, gap: float, tokens: int) -> Timings:
    return Timings(0.0, stamps=[first + gap * at for at in range(tokens)], tokens=tokens)


def test_figures_of_known_times() -> None:
    found = [answered(0.1, 0.01, 11), answered(0.3, 0.03, 11), Timings(0.0, stamps=[], error="gone")]
    result = figures(found, 2.0, Limit(first_token=0.2, per_token=0.02))
    assert (result.requests, result.failed, result.good, result.error) == (3, 1, 1, "gone")
    assert (result.token_rate, result.request_rate, result.good_rate) == (11.0, 1.0, 0.5)
    assert result.first_token is not None
    assert result.first_token.p50 == pytest.approx(0.2)
    assert result.per_token is not None
    assert result.per_token.p99 == pytest.approx(0.0298)
    assert spread([]) is None
    whole = spread([float(value) for value in range(101)])
    assert whole is not None
    assert (whole.p50, whole.p90, whole.p99) == pytest.approx((50.0, 90.0, 99.0))


def test_goodput_takes_both_limits() -> None:
    slow_start, slow_end = answered(0.5, 0.01, 5), answered(0.1, 0.2, 5)
    assert figures([slow_start, slow_end], 1.0, Limit()).good == 2
    assert figures([slow_start, slow_end], 1.0, Limit(first_token=0.2)).good == 1
    assert figures([slow_start, slow_end], 1.0, Limit(first_token=0.2, per_token=0.1)).good == 0


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_workloads_make_their_prompts(name: str) -> None:
    workload = load_workload(name)
    made = conversations(workload, 5)
    assert len(made) == workload.requests
    assert made == conversations(workload, 5)
    assert made != conversations(workload, 6)
    users = {one[-1]["content"] for one in made}
    assert len(users) == len(made)
    systems = {one[0]["content"] for one in made if one[0]["role"] == "system"}
    assert len(systems) == (1 if workload.prompts == "shared" else 0)


def test_a_workload_file(tmp_path: Path) -> None:
    (tmp_path / "talks.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n\n[{"role": "user"}]\n')
    path = tmp_path / "mine.toml"
    path.write_text('prompts = "talks.jsonl"\nrequests = 3\nrate = 2.5\nfields = {top_k = 4}\n')
    workload = load_workload(str(path))
    assert (workload.name, workload.rate, workload.fields) == ("mine", 2.5, {"top_k": 4})
    assert [one[0].get("content") for one in conversations(workload, 1)] == ["a", None, "a"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("requets = 3", "did you mean 'requests'"),
        ("requests = 0", "requests"),
        ("rate = -1.0", "rate"),
        ("requests = ", "mine.toml"),
        ('prompts = "none.jsonl"', "none.jsonl"),
        ('conversations = [[{role = "user"}]]', "conversations"),
    ],
)
def test_a_wrong_workload_file_says_what(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(BenchError, match=said):
        load_workload(str(path))


def test_a_workload_that_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.ir.files.read_small.__kwdefaults__", {"pipe_seconds": 0.01})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name, words in (("pipe", "is a pipe"), ("", "Is a directory"), ("bytes", r"not UTF-8 \(byte 0\)")):
        with pytest.raises(BenchError, match=words):
            load_workload(str(tmp_path / name))
    (tmp_path / "mine.toml").write_text('prompts = "pipe"')
    with pytest.raises(BenchError, match=r"is no file of conversations .*is a pipe"):
        load_workload(str(tmp_path / "mine.toml"))
    with pytest.raises(BenchError, match="is a pipe"):
        read_plan(tmp_path / "pipe")


def invoke(*arguments: str) -> Result:
    app = typer.Typer(callback=lambda: None)
    app.add_typer(bench, name="bench")
    return CliRunner().invoke(app, ["bench", "http", *arguments])


def test_the_command(tmp_path: Path) -> None:
    load = tmp_path / "small.toml"
    load.write_text("requests = 2\nconcurrency = 1\nmax_tokens = 3\n")
    picture = tmp_path / "out.svg"
    options = ("-w", str(load), "--rounds", "1", "--plot", "--good-first-token", "5000", "--picture", str(picture))
    with serving(ScriptedProvider(three_tokens)) as live:
        shown = invoke(live.url, live.url, *options)
        told = invoke(live.url, "-w", str(load), "--rounds", "1", "--json", "--key", "sk-x")
    assert shown.exit_code == 0, shown.output
    for word in ("ratio", "first token, p99", "good requests", "prefix cache", "part of all below"):
        assert word in " ".join(shown.output.split())
    drawn = picture.read_text()
    assert drawn.startswith("<svg")
    assert "url(http" not in drawn
    for word in ("ratio", "first token, p99, ms", live.url, "part of all below"):
        assert word.replace(" ", "&#160;") in drawn
    report = json.loads(told.stdout)
    assert report["servers"][0]["rounds"][0]["tokens"] == 6
    assert "sk-x" not in told.stdout


def test_the_command_explains_what_it_cannot_do() -> None:
    nobody = invoke("http://127.0.0.1:9", "--rounds", "1")
    assert isinstance(nobody.exception, CliError)
    assert nobody.exception.message == "http://127.0.0.1:9 does not answer: connection refused"
    nowhere = invoke("http://127.0.0.1:9", "--picture", "/nowhere/x.svg")
    assert isinstance(nowhere.exception, CliError)
    assert nowhere.exception.message == "cannot write /nowhere/x.svg: there is no folder /nowhere"
    assert invoke("http://a", "http://b", "--model", "x", "--model", "y", "--model", "z").exit_code == 2
