"""Requests that a stranger's web page makes a browser send."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from millstream.server.origins import is_loopback
from support.live import Live, serving

CHAT = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}).encode()
MESSAGES = json.dumps({"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}).encode()
JSON = {"content-type": "application/json"}
POSTS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
         "/tokenize", "/detokenize", "/apply-template", "/v1/nothing"]  # fmt: skip
GETS = ["/", "/v1/models", "/v1/models/tiny", "/v1/responses/resp_1", "/metrics"]


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(allow_hosts=("proxy.example",), allow_origins=("https://app.example",)) as live:
        yield live


def refused(answer, code: str, option: str) -> None:
    assert answer.status_code == 403
    assert answer.headers["x-request-id"]
    assert "access-control-allow-origin" not in answer.headers
    body = answer.json()
    assert option in body["error"]["message"]
    if body.get("type") == "error":
        assert body["error"]["type"] == "permission_error"
    else:
        assert body["error"]["code"] == code


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "file://", "http://127.0.0.1.evil.example"])
@pytest.mark.parametrize(("method", "path"), [*(("POST", path) for path in POSTS), *(("GET", path) for path in GETS)])
def test_a_page_of_another_origin_is_refused_everywhere(live: Live, method: str, path: str, origin: str) -> None:
    with live.client() as client:
        answer = client.request(method, path, headers={**JSON, "origin": origin}, content=CHAT)
    refused(answer, "origin_not_allowed", "--allow-origin")


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH"])
def test_whatever_the_method(live: Live, method: str) -> None:
    asking = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    with live.client() as client:
        answer = client.request(method, "/v1/chat/completions", headers=asking)
    refused(answer, "origin_not_allowed", "--allow-origin")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"])
@pytest.mark.parametrize("path", [*POSTS, *GETS, "/health"])
def test_a_name_that_was_made_to_point_here_is_refused(live: Live, path: str, host: str) -> None:
    method = "POST" if path in POSTS else "GET"
    with live.client() as client:
        answer = client.request(method, path, headers={"host": host, "origin": f"http://{host}"}, content=CHAT)
    refused(answer, "host_not_allowed", "--allow-host")


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "mill.localhost:8000", "localhost.", "127.0.0.1", "127.8.9.1:8", "[::1]:8000",
     "proxy.example", "Proxy.Example:443"],
)  # fmt: skip
def test_names_of_this_machine_and_allowed_ones_are_served(live: Live, host: str) -> None:
    with live.client() as client:
        answer = client.post("/v1/chat/completions", headers={**JSON, "host": host}, content=CHAT)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("localhost", "http://localhost:80"),
        ("localhost:443", "https://localhost"),
        ("proxy.example", "https://proxy.example"),
        ("localhost:8000", "https://app.example"),
    ],
)
def test_its_own_pages_and_allowed_ones_may_call(live: Live, host: str, origin: str) -> None:
    with live.client() as client:
        answer = client.post("/v1/messages", headers={**JSON, "host": host, "origin": origin}, content=MESSAGES)
    assert answer.status_code == 200


@pytest.mark.parametrize("origin", ["http://localhost:8001", "http://localhost", "ftp://localhost:8000", "http://["])
def test_another_port_is_another_origin(live: Live, origin: str) -> None:
    with live.client() as client:
        headers = {**JSON, "host": "localhost:8000", "origin": origin}
        answer = client.post("/v1/chat/completions", headers=headers, content=CHAT)
    refused(answer, "origin_not_allowed", "--allow-origin")


def test_any_page_may_see_whether_it_lives(live: Live) -> None:
    with live.client() as client:
        assert client.get("/health", headers={"origin": "http://evil.example"}).status_code == 200
        assert client.post("/health", headers={"origin": "http://evil.example"}).status_code == 403


def test_a_body_must_be_declared_by_a_page(live: Live) -> None:
    with live.client() as client:
        page = client.post("/v1/chat/completions", headers={"origin": "https://app.example"}, content=CHAT)
        script = client.post("/v1/chat/completions", content=CHAT)
    assert (page.status_code, page.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert page.headers["access-control-allow-origin"] == "https://app.example"
    assert script.status_code == 200


def test_any_origin_and_any_name_where_that_was_chosen() -> None:
    with serving(allow_origins=("*",)) as live, live.client() as client:
        headers = {**JSON, "host": "any.example", "origin": "http://evil.example"}
        assert client.post("/v1/chat/completions", headers=headers, content=CHAT).status_code == 200


@pytest.mark.parametrize(
    ("name", "loopback"),
    [("localhost", True), ("a.localhost", True), ("127.1.2.3", True), ("::1", True), ("alocalhost", False),
     ("0.0.0.0", False), ("128.0.0.1", False), ("localhost.evil.example", False), ("", False)],
)  # fmt: skip
def test_what_is_loopback(name: str, loopback: bool) -> None:
    assert is_loopback(name) is loopback
