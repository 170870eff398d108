"""The description of the API is what the app runs on, and the page asks nobody else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from millstream.server.app import create_app
from millstream.server.docs.openapi import BODIES, SUMMARIES
from support.provider import NoDesk, ScriptedEngine, ScriptedProvider


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = create_app(ScriptedProvider(), ScriptedEngine().stats, desk=NoDesk())
    return TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 40000))


@pytest.fixture(scope="module")
def document(client: TestClient) -> dict[str, Any]:
    spec: dict[str, Any] = client.get("/openapi.json").json()
    return spec


def test_every_route_is_described(client: TestClient, document: dict[str, Any]) -> None:
    routes = [route for route in client.app.routes if isinstance(route, Route)]  # type: ignore[attr-defined]
    there = {
        (method, re.sub(r":\w+\}", "}", route.path))
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == there
    assert described == SUMMARIES.keys()
    assert {path for method, path in there if method == "POST"} >= BODIES.keys()


def test_every_route_is_in_the_table_of_the_api_page() -> None:
    """The operator's are on a page of their own."""
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    listed = page.partition("| path | what |")[2].partition("\n## ")[0]
    paths = {path.replace("{model}", "{id}") for _, path in SUMMARIES}
    public = {path for path in paths if not path.startswith(("/v1/admin", "/assets"))}
    assert {path for path in public if f" {path}`" not in listed} == set()


@pytest.mark.parametrize("path", BODIES)
def test_every_field_is_described_as_its_table_says(path: str, document: dict[str, Any]) -> None:
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    table = BODIES[path].table
    assert list(schema["properties"]) == list(table)
    for name, field in table.items():
        described = schema["properties"][name]
        assert (described["x-millstream-status"], described["description"]) == (field.status, field.note)


@pytest.mark.parametrize("path", BODIES)
def test_honoured_fields_have_the_type_they_are_read_as(path: str) -> None:
    """Each is a member of the structure, so none is honoured on paper only."""
    body = BODIES[path]
    honoured = {name for name, field in body.table.items() if field.status == "honoured"}
    assert honoured <= set(body.kind.__struct_fields__) | {"model"}


@pytest.mark.parametrize("path", [path for path in BODIES if path not in ("/tokenize", "/apply-template")])
def test_what_is_required_is_missed(path: str, client: TestClient, document: dict[str, Any]) -> None:
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"]
    answer = client.post(path, json={})
    assert answer.status_code == 400
    assert any(name in answer.text for name in schema["required"])


def test_refused_values_are_refused_and_others_pass(client: TestClient, document: dict[str, Any]) -> None:
    path = "/v1/completions"
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    request = {"model": "tiny", "prompt": "a"}
    for name, described in schema["properties"].items():
        if described["x-millstream-status"] == "refused":
            assert client.post(path, json={**request, name: "never"}).json()["error"]["param"] == name
            for value in described["enum"]:
                assert client.post(path, json={**request, name: value}).status_code == 200, (name, value)


def test_references_are_there(document: dict[str, Any]) -> None:
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert names <= document["components"]["schemas"].keys()


def test_the_page_is_alone(client: TestClient) -> None:
    answer = client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"(?:src|href)=\"(?!data:,)", answer.text)
    assert "://" not in answer.text
    assert "innerHTML" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
