"""What the routes of the page serve: a table of packaged files, with a policy that allows nothing foreign."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from millstream.server.app import create_app
from millstream.web.files import PAGE, page_files
from support.live import Live, serving
from support.provider import ScriptedEngine, ScriptedProvider

HTML = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
FILES = page_files()


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(create_app(ScriptedProvider(), ScriptedEngine().stats))


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving() as live:
        yield live


def test_browsers_get_the_page(client: TestClient) -> None:
    answer = client.get("/", headers={"accept": HTML})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["vary"] == "accept"
    assert answer.content == FILES[PAGE].content


@pytest.mark.parametrize(
    "accept", ["*/*", "application/json", "text/html;q=0, */*", "text/html; q=0.00", "text/plain", ""]
)
def test_programs_get_what_they_always_got(client: TestClient, accept: str) -> None:
    answer = client.get("/", headers={"accept": accept})
    assert answer.json()["name"] == "millstream"
    assert answer.headers["vary"] == "accept"


@pytest.mark.parametrize("name", sorted(FILES.keys() - {PAGE}))
def test_files_come_with_their_type_and_the_policy(client: TestClient, name: str) -> None:
    answer = client.get(f"/assets/{name}")
    kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
    assert answer.headers["content-type"] == kinds[name.rpartition(".")[2]]
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "*" not in policy
    assert answer.content == FILES[name].content


@pytest.mark.parametrize(("path", "accept"), [("/", HTML), ("/assets/app.js", "*/*")])
def test_an_unchanged_file_is_not_sent_again(client: TestClient, path: str, accept: str) -> None:
    tag = client.get(path, headers={"accept": accept}).headers["etag"]
    for condition in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        again = client.get(path, headers={"accept": accept, "if-none-match": condition})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    other = client.get(path, headers={"accept": accept, "if-none-match": '"other"'})
    assert other.status_code == 200


def test_head_is_answered_without_a_body(client: TestClient) -> None:
    answer = client.head("/assets/app.js")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "target",
    [
        "/assets/", "/assets/index.html", "/assets/../files.py", "/assets/%2e%2e/files.py", "/assets/..%2ffiles.py",
        "/assets/chat/../../files.py", "/assets//etc/passwd", "/assets/%2fetc%2fpasswd", "/assets/chat",
        "/assets/chat/", "/assets/app.js%00", "/assets/APP.JS", "/assets/..%5cfiles.py", "/assets/app.js/",
        "/assets/%ff",
    ],
)  # fmt: skip
def test_no_path_leaves_the_table(live: Live, target: str) -> None:
    """Sent raw: clients tidy paths up."""
    with live.raw(f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()) as sock:
        raw = b"".join(iter(lambda: sock.recv(65536), b""))
    assert raw.startswith(b"HTTP/1.1 404")
    assert b"unknown_url" in raw


def test_nothing_is_inline_and_nothing_is_foreign() -> None:
    page = FILES[PAGE].content.decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>|javascript:", page)
    for name, file in FILES.items():
        text = file.content.decode()
        assert not re.search(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function)\b", text), (
            name
        )
        links = re.findall(r"(?:src|href)=\"([^\"]+)\"|from \"([^\"]+)\"|url\(([^)]*)\)", text)
        for target in filter(None, (part for link in links for part in link)):
            assert target.startswith(("/", "./", "../", "#")), (name, target)


def test_every_file_that_is_named_is_there() -> None:
    page = FILES[PAGE].content.decode()
    named = set(re.findall(r"/assets/([\w./-]+)", page))
    assert named <= FILES.keys()
    sprite = FILES["icons.svg"].content.decode()
    pattern = re.compile(r"icons\.svg#(\w+)|\b(?:icon|iconButton)\(\"(\w+)\"")
    found = [pair for file in FILES.values() for pair in pattern.findall(file.content.decode())]
    assert {name for pair in found for name in pair if name} == set(re.findall(r"id=\"(\w+)\"", sprite))


def test_the_overview_of_the_api_is_still_found(client: TestClient) -> None:
    assert client.get("/").json()["paths"]["docs"] == "/docs"
