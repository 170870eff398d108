"""The overview of the API at `/docs`, in a browser: all that the description says is on the page."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.live import Live
from web.conftest import OpenTab

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def document(live: Live) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{live.url}/openapi.json", trust_env=False).json()
    return found


async def test_every_operation_is_shown_with_its_fields_and_answers(
    open_tab: OpenTab, document: dict[str, Any]
) -> None:
    async with open_tab() as tab:
        await tab.page.goto(f"{tab.url}/docs")
        await tab.page.locator("summary", has_text="Structures").wait_for()
        shown = await tab.page.locator("details").evaluate_all(
            "all => all.map(one => [one.querySelector('.method')?.textContent, one.querySelector('.path')?.textContent,"
            " [...one.querySelectorAll('tr td:first-child')].map(cell => cell.textContent),"
            " [...one.querySelectorAll('p.about')].map(part => part.textContent)])"
        )
        title = await tab.page.inner_text("h1")
    assert title == f"{document['info']['title']} {document['info']['version']}"
    wanted = [
        (method.upper(), path, spec) for path, methods in document["paths"].items() for method, spec in methods.items()
    ]
    assert [(method, path) for method, path, _, _ in shown[:-1]] == [(method, path) for method, path, _ in wanted]
    for (_, path, fields, about), (_, _, spec) in zip(shown, wanted, strict=False):
        body = spec.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        assert fields == [*body.get("properties", {})], path
        answers = [line for line in about if not line.startswith("In the query")]
        for line, (status, answer) in zip(answers, spec["responses"].items(), strict=True):
            assert line.startswith("Failures: " if status == "default" else f"{status}: "), (path, line)
            assert all(kind in line for kind in answer.get("content", {})), (path, line)
            assert line.partition(": ")[2].strip(), (path, line)
    assert shown[-1][:2] == [None, next(iter(document["components"]["schemas"]))]
