"""Attacks on the server over raw sockets, and what must hold for every answer. docs/security.md names these tests."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.server.head import MAX_HEADER_BYTES, MAX_HEADERS, MAX_TARGET_BYTES
from millstream.server.protocol import allowed_connections
from millstream.surfaces import openai_chat
from millstream.surfaces.wire import Call, Limits
from support.keyed import Keys
from support.live import Live, read_all, serving
from support.waiting import wait_until

CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}).encode()


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(body_seconds=0.4, header_seconds=0.4, max_connections=8, max_reading_bytes=100_000) as live:
        yield live


def head(*lines: str, method: str = "POST", target: str = CHAT) -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "host: localhost", *lines, "", ""]).encode()


def answered(sock: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Status, headers and body of an answer after which the server closes."""
    with sock:
        top, _, body = read_all(sock).partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, json.loads(body)


def lives(live: Live) -> bool:
    with live.client() as client:
        return client.get("/health").status_code == 200


class TestHead:
    def test_many_headers(self, live: Live) -> None:
        lines = [f"x-{number}: 1" for number in range(MAX_HEADERS)]
        status, headers, body = answered(live.raw(head("connection: close", *lines, method="GET", target="/health")))
        assert (status, body["error"]["code"]) == (431, "headers_too_large")
        assert headers["x-content-type-options"] == "nosniff"

    def test_as_many_as_honest_clients_send(self, live: Live) -> None:
        lines = [f"x-{number}: 1" for number in range(MAX_HEADERS - 2)]
        status, _, _ = answered(live.raw(head("connection: close", *lines, method="GET", target="/health")))
        assert status == 200

    @pytest.mark.parametrize("target", ["/" + "a" * MAX_TARGET_BYTES, "/v1/models?" + "a" * MAX_TARGET_BYTES])
    def test_a_long_url(self, live: Live, target: str) -> None:
        status, _, body = answered(live.raw(head("connection: close", method="GET", target=target)))
        assert (status, body["error"]["code"]) == (414, "uri_too_long")

    def test_large_headers_that_come_at_once(self, live: Live) -> None:
        """The parser bounds only what it must keep; these it can read to their end."""
        lines = [f"x-{number}: " + "a" * 1000 for number in range(70)]
        status, _, body = answered(live.raw(head("connection: close", *lines, method="GET", target="/health")))
        assert (status, body["error"]["code"]) == (431, "headers_too_large")

    @pytest.mark.parametrize(("target", "kind"), [("/v1/messages?beta=true", "invalid_request_error"), (CHAT, None)])
    def test_headers_without_end(self, live: Live, target: str, kind: str | None) -> None:
        """Refused before they are read to their end, in the words of the API that is asked for."""
        start = f"POST {target} HTTP/1.1\r\nhost: localhost\r\nx: ".encode()
        status, _, body = answered(live.raw(start + b"a" * (MAX_HEADER_BYTES + 1 - len(start))))
        assert status == 431
        if kind is None:
            assert body["error"]["code"] == "headers_too_large"
        else:
            assert (body["type"], body["error"]["type"]) == ("error", kind)

    def test_headers_that_come_drop_by_drop(self, live: Live) -> None:
        """Each byte is no new grace."""
        with live.raw(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: ") as sock, contextlib.suppress(OSError):
            for _ in range(3000):
                sock.sendall(b"a")
                time.sleep(0.02)
                sock.settimeout(0.001)
                with contextlib.suppress(TimeoutError):
                    if sock.recv(1) == b"":
                        break
            else:
                raise AssertionError("the server waits for ever")
        assert lives(live)

    @pytest.mark.parametrize(
        "lines",
        [
            ["content-length: 5", "transfer-encoding: chunked"],
            ["content-length: 5", "content-length: 6"],
            ["transfer-encoding: gzip, chunked"],
            ["content-length: -1"],
            ["content-length: +5"],
            ["bad header"],
            [" folded: x"],
            ["x: a\x00b"],
        ],
    )
    def test_a_request_whose_end_can_be_read_in_two_ways(self, live: Live, lines: list[str]) -> None:
        """Request smuggling: a proxy before the server must not see another end than it does."""
        raw = read_all(live.raw(head(*lines) + b"0\r\n\r\nGET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"))
        statuses = [answer[:3] for answer in raw.split(b"HTTP/1.1 ")[1:]]
        assert statuses
        assert all(status.startswith(b"4") for status in statuses)
        assert b"millstream_" not in raw


class TestBody:
    def test_a_body_drop_by_drop(self, live: Live) -> None:
        sock = live.raw(head("content-type: application/json", "content-length: 1000", "connection: close"))
        stop = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(0.03):
                    sock.sendall(b" ")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            status, _, body = answered(sock)
        finally:
            stop.set()
            dripping.join()
        assert (status, body["error"]["code"]) == (408, None)

    @pytest.mark.parametrize("target", ["/nothing", "/health", "/v1/responses/x/cancel"])
    def test_a_body_that_nobody_reads(self, live: Live, target: str) -> None:
        """It is answered at once, and the connection does not stay open for the rest."""
        with live.raw(head("content-length: 1000000", target=target) + b"x") as sock:
            began = time.monotonic()
            assert read_all(sock).startswith(b"HTTP/1.1 4")
            assert time.monotonic() - began < 20

    def test_many_large_bodies_at_once(self, live: Live) -> None:
        """Each is within its own bound; together they are not."""
        opening = head("content-type: application/json", "content-length: 60000", "connection: close")
        with serving(body_seconds=60, max_reading_bytes=100_000) as patient:
            socks = {patient.raw(opening + b" " * 59_000) for _ in range(2)}
            (refused,) = select.select(socks, [], [], 60)[0]
            assert answered(refused)[0] == 429
            (other,) = socks - {refused}
            other.sendall(b" " * 1000)
            assert answered(other)[0] == 400  # it was read to its end
            assert self.large(patient) == 200  # what was held is given back

    def test_what_was_held_of_a_body_that_never_comes_is_given_back(self, live: Live) -> None:
        opening = head("content-type: application/json", "content-length: 60000", "connection: close")
        assert answered(live.raw(opening + b" " * 59_000))[0] == 408
        assert self.large(live) == 200

    @staticmethod
    def large(live: Live) -> int:
        """The status of a request that takes most of what may be held."""
        message = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 90_000}]}
        with live.client() as client:
            return client.post(CHAT, json=message).status_code

    def test_large_bodies_that_wait_to_be_decoded(self, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        """They come faster than two threads decode them."""
        begun, go_on = threading.Event(), threading.Event()
        decode = openai_chat.decode

        def slow(body: bytes, limits: Limits) -> Call:
            begun.set()
            assert go_on.wait(20)
            return decode(body, limits)

        monkeypatch.setattr("millstream.server.decoding.LARGE_BODY", 1000)
        monkeypatch.setattr("millstream.surfaces.openai_chat.decode", slow)
        body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x" * 60_000}]}).encode()
        request = head("content-type: application/json", f"content-length: {len(body)}", "connection: close") + body
        first = live.raw(request)
        try:
            assert begun.wait(20)
            status, headers, told = answered(live.raw(request))
            assert (status, told["error"]["code"], headers["retry-after"]) == (429, "queue_full", "5")
            with live.client() as client:  # who asks little is answered meanwhile
                assert client.post("/v1/completions", json={"model": "tiny", "prompt": "hi"}).status_code == 200
        finally:
            go_on.set()
        assert answered(first)[0] == 200
        assert answered(live.raw(request))[0] == 200

    def test_without_a_key_nothing_of_a_body_is_read(self, tmp_path: Path) -> None:
        keys = Keys(tmp_path)
        keys.add("a")
        with serving(keys_path=keys.path, body_seconds=30) as guarded:
            opening = head("content-type: application/json", "content-length: 30000000", "connection: close")
            status, _, body = answered(guarded.raw(opening))
            assert (status, body["error"]["code"]) == (401, "missing_api_key")


class TestConnections:
    def test_idle_ones_give_way(self, live: Live) -> None:
        """Sockets that are opened and left do not lock others out."""
        idle = [live.raw(b"") for _ in range(30)]
        assert lives(live)
        for sock in idle:
            sock.close()

    def test_when_all_are_at_work_the_next_is_told(self, live: Live) -> None:
        live.provider.__init__(lambda request: [3600.0])  # type: ignore[misc]
        request = head("content-type: application/json", f"content-length: {len(BODY)}") + BODY
        busy = [live.raw(request) for _ in range(8)]
        try:
            wait_until(lambda: len(live.provider.requests) == 8)
            status, headers, body = answered(live.raw(b""))
            assert (status, body["error"]["code"], headers["retry-after"]) == (429, "queue_full", "1")
        finally:
            for sock in busy:
                sock.close()
            live.provider.__init__()  # type: ignore[misc]
        wait_until(lambda: lives(live))

    def test_never_more_than_there_are_descriptors_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("resource.getrlimit", lambda _: (256, 4096))
        assert [allowed_connections(wanted) for wanted in (10, 1000)] == [10, 156]


MARK = "mark7f3a"
PATHS = [f"../../{MARK}", f"/etc/{MARK}", f"..%2f..%2f{MARK}", f"{MARK}\x00.gguf"]
_opened: list[str] = []
_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in ("open", "os.listdir", "os.scandir", "sqlite3.connect", "os.stat", "shutil.copyfile"):
        _opened.extend(str(argument) for argument in arguments if MARK in str(argument))


def test_no_name_of_a_request_reaches_the_file_system(live: Live) -> None:
    """Watched by the interpreter's own audit events while every route gets paths for names."""
    global _watching
    sys.addaudithook(_watch)
    user = [{"role": "user", "content": "hi"}]
    _watching = True
    try:
        with live.client() as client:
            for path in PATHS:
                quoted = path.replace("\x00", "%00")
                for prefix in ("/", "/assets/", "/v1/models/", "/v1/responses/", f"{CHAT}/", "/docs/", "/v1/admin/"):
                    assert client.get(prefix + quoted, headers={"x-request-id": MARK}).status_code in (404, 405)
                for target, fields in (
                    (
                        CHAT,
                        {"messages": user, "store": True, "metadata": {"f": path}, "chat_template_kwargs": {"t": path}},
                    ),
                    ("/v1/completions", {"prompt": path}),
                    ("/v1/responses", {"input": path, "previous_response_id": path}),
                    ("/v1/messages", {"max_tokens": 5, "messages": user, "metadata": {"user_id": path}}),
                    ("/tokenize", {"prompt": path}),
                ):
                    assert client.post(target, json={"model": path, **fields}).status_code in (400, 404, 501)
                    assert client.post(target, json={"model": "tiny", **fields}).status_code in (200, 400, 404, 501)
    finally:
        _watching = False
    assert _opened == []


@pytest.mark.parametrize(
    ("target", "part"),
    [
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "URL"}}]}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "URL"}]}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "URL"}]}]}),
        ("/v1/messages", {"max_tokens": 5, "messages": [
            {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "URL"}}]}]}),
        ("/v1/messages", {"max_tokens": 5, "messages": [
            {"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "URL"}}]}]}),
        ("/v1/responses", {"input": "x", "tools": [{"type": "mcp", "server_label": "x", "server_url": "URL"}]}),
    ],
)  # fmt: skip
def test_urls_are_refused_and_never_fetched(live: Live, target: str, part: dict[str, Any]) -> None:
    """No request forgery: a server that the request names sees nobody come."""
    with socket.create_server(("127.0.0.1", 0)) as named, live.client() as client:
        named.setblocking(False)
        url = f"http://127.0.0.1:{named.getsockname()[1]}/x.png"
        text = json.dumps({"model": "tiny", **part}).replace("URL", url)
        answer = client.post(target, content=text, headers={"content-type": "application/json"})
        # What a hosted tool would fetch is left out, as there are none; what the model should see is refused.
        assert answer.status_code == (200 if "tools" in part else 400)
        with pytest.raises(BlockingIOError):
            named.accept()


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/health", "/v1/models", "/nothing", "/metrics"])
def test_headers_of_every_answer(live: Live, path: str) -> None:
    with live.client() as client:
        answer = client.get(path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"]
    assert "server" not in answer.headers
    if answer.headers["content-type"].startswith("text/html"):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_stream_keeps_its_own_cache_rule(live: Live) -> None:
    with live.client() as client:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        answer = client.post(CHAT, json=body)
    assert answer.headers.get_list("cache-control") == ["no-cache"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("target", ["//", "//v1/models", "/v1/../health", "/health/..", "/./health", "/health%00",
                                    "/health?x", "/HEALTH", "/assets/../v1/models", "http://x/v1/models"])  # fmt: skip
def test_odd_paths_open_nothing(tmp_path: Path, target: str) -> None:
    """As they are on the wire: no client tidies them up first."""
    keys = Keys(tmp_path)
    keys.add("a")
    with serving(keys_path=keys.path) as guarded:
        status, _, body = answered(guarded.raw(head("connection: close", method="GET", target=target)))
    assert status == 200 if target == "/health?x" else status in (401, 404)
    assert "data" not in body
