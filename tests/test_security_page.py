"""docs/security.md names a test for every threat; each of them is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`((?:\w+/)?test_\w+\.py)((?:::\w+)*)`", PAGE)


def test_every_threat_names_one() -> None:
    rows = [
        line for line in PAGE.partition("## Threats")[2].partition("\n## ")[0].splitlines() if line.startswith("| ")
    ]
    assert len(rows) > 20
    assert [row for row in rows[1:] if "test_" not in row] == []


@pytest.mark.parametrize(("path", "names"), NAMED)
def test_it_exists(path: str, names: str) -> None:
    body: list[ast.stmt] = ast.parse((TESTS / path).read_text(encoding="utf-8")).body
    for name in names.split("::")[1:]:
        found = [node for node in body if getattr(node, "name", None) == name]
        assert found, f"{path}{names}"
        body = getattr(found[0], "body", [])
