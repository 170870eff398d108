"""Requests that break servers, each with the answer it must get."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from support.live import Live, read_all, serving

BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}).encode()
CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(max_body_bytes=4096, body_seconds=0.3, header_seconds=0.3) as live:
        yield live


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status", "code"),
    [
        ("POST", CHAT, JSON, BODY, 200, None),
        ("POST", CHAT, {}, BODY, 200, None),
        ("POST", CHAT, {"content-type": "application/json; charset=utf-8"}, BODY, 200, None),
        ("POST", CHAT, JSON, b"", 400, "invalid_json"),
        ("POST", CHAT, JSON, b"{", 400, "invalid_json"),
        ("POST", CHAT, JSON, b"\xff\xfe", 400, "invalid_json"),
        ("POST", CHAT, JSON, b"[" * 4000, 400, None),
        ("POST", CHAT, JSON, b'{"model":"nope","messages":[{"role":"user","content":"hi"}]}', 404, "model_not_found"),
        ("POST", CHAT, {"content-type": "text/plain"}, BODY, 415, "unsupported_media_type"),
        ("POST", CHAT, {"origin": "http://127.0.0.1", "host": "127.0.0.1"}, BODY, 415, "unsupported_media_type"),
        ("POST", CHAT, {**JSON, "origin": "http://evil.example"}, BODY, 403, "origin_not_allowed"),
        ("POST", CHAT, {"origin": "http://evil.example"}, BODY, 403, "origin_not_allowed"),
        ("POST", CHAT, {"content-type": "application/x-www-form-urlencoded"}, BODY, 415, "unsupported_media_type"),
        ("POST", CHAT, {**JSON, "content-encoding": "gzip"}, BODY, 415, "unsupported_media_type"),
        ("POST", CHAT, JSON, b" " * 5000, 413, "request_too_large"),
        ("GET", "/v1/completions", {}, b"", 405, "method_not_allowed"),
        ("PUT", CHAT, JSON, BODY, 405, "method_not_allowed"),
        ("DELETE", "/v1/models/tiny", {}, b"", 405, "method_not_allowed"),
        ("POST", "/health", JSON, b"{}", 405, "method_not_allowed"),
        ("POST", "/v1/nothing", JSON, BODY, 404, "unknown_url"),
        ("GET", "/v1/chat/completions/", {}, b"", 404, "unknown_url"),
        ("GET", "/%2e%2e/%00", {}, b"", 404, "unknown_url"),
        ("GET", "/v1/models/", {}, b"", 404, "model_not_found"),
        ("GET", "/v1/models/a%2Fb%0A", {}, b"", 404, "model_not_found"),
    ],
)
def test_statuses(live: Live, method, path, headers, body, status, code) -> None:
    with live.client() as client:
        answer = client.request(method, path, headers=headers, content=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    if status == 200:
        return
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["type"] == "invalid_request_error"
    if status == 405:
        assert answer.headers["allow"]


def test_head_and_options(live: Live) -> None:
    with live.client() as client:
        head = client.head("/health")
        options = client.options(CHAT)
    assert (head.status_code, head.content) == (200, b"")
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, POST, OPTIONS")
    assert "access-control-allow-origin" not in options.headers


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("abc-1", True), ("a b", False), ("x" * 129, False), ("é".encode("latin-1"), False), ("", False),
        ("a/b.c", True), ("..a/.b", True), ("...", True), ("wire", True), ("a==", True),
        (".", False), ("..", False), ("../x", False), ("a/../models/pull", False), ("a/.", False), ("a/./b", False),
        ("a/wire", False),
    ],
)  # fmt: skip
def test_request_ids(live: Live, sent: Any, kept: bool) -> None:
    with live.client() as client:
        answer = client.get("/v1/models", headers={"x-request-id": sent})
    assert (answer.headers["x-request-id"] == sent) is kept
    assert answer.headers["x-request-id"]


def head(*lines: str) -> bytes:
    return "\r\n".join([f"POST {CHAT} HTTP/1.1", "host: x", "content-type: application/json", *lines, "", ""]).encode()


def status_of(sock: socket.socket) -> tuple[int, dict[str, Any]]:
    top, _, body = read_all(sock).partition(b"\r\n\r\n")
    return int(top.split()[1]), json.loads(body)


def test_an_announced_body_that_is_too_large_is_not_read(live: Live) -> None:
    status, body = status_of(live.raw(head("content-length: 99999999", "connection: close")))
    assert (status, body["error"]["code"]) == (413, "request_too_large")


def test_a_chunked_body_is_measured_as_it_comes(live: Live) -> None:
    chunk = b"%x\r\n" % 5000 + b" " * 5000 + b"\r\n0\r\n\r\n"
    status, body = status_of(live.raw(head("transfer-encoding: chunked", "connection: close") + chunk))
    assert (status, body["error"]["code"]) == (413, "request_too_large")


def test_a_body_that_never_comes_is_given_up(live: Live) -> None:
    status, body = status_of(live.raw(head("content-length: 50", "connection: close") + b"{"))
    assert status == 408
    assert "not complete" in body["error"]["message"]


def test_headers_that_never_end_are_given_up(live: Live) -> None:
    assert read_all(live.raw(b"POST / HTTP/1.1\r\nhost:")) == b""


def test_what_is_no_http_gets_json_all_the_same(live: Live) -> None:
    status, body = status_of(live.raw(b"hello\r\n\r\n"))
    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"


def test_headers_without_end_are_bounded(live: Live) -> None:
    # The server closes while the client still sends, so the client may see a reset instead of the 431.
    with contextlib.suppress(ConnectionError):
        status, _ = status_of(live.raw(b"GET / HTTP/1.1\r\nx: " + b"a" * 200_000))
        assert status == 431


def test_a_client_that_leaves_in_its_body_is_forgotten(live: Live) -> None:
    live.raw(head("content-length: 50") + b"{").close()
    with live.client() as client:
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("target", "status"),
    [("http://127.0.0.1/v1/models", 200), ("HTTP://x/v1/models?a=b", 200), ("http://x", 200), ("http://x/nothing", 404),
     ("ftp://x/v1/models", 404)],
)  # fmt: skip
def test_a_whole_url_is_a_target_too(live: Live, target: str, status: int) -> None:
    request = f"GET {target} HTTP/1.1\r\nhost: y\r\nconnection: close\r\n\r\n"
    assert status_of(live.raw(request.encode()))[0] == status


def test_the_name_in_a_whole_url_is_the_one_that_counts() -> None:
    with serving(allow_hosts=()) as live:
        request = "GET http://evil.example/v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        status, body = status_of(live.raw(request.encode()))
    assert (status, body["error"]["code"]) == (403, "host_not_allowed")


def test_two_requests_on_one_connection(live: Live) -> None:
    one = head(f"content-length: {len(BODY)}") + BODY
    last = head(f"content-length: {len(BODY)}", "connection: close") + BODY
    assert read_all(live.raw(one + last)).count(b"HTTP/1.1 200") == 2
