"""Every code of an error that the source can tell stands in the table of docs/api.md, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millstream"
NO_ANSWERS = ("bench", "cli", "lint", "selftest", "tui")
"""Packages that answer no requests."""

HANDED_ON = {"code", "error.code"}
"""What a function was given by another, which names the code."""

MODULES = [
    path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in NO_ANSWERS
]  # fmt: skip


def arguments(tree: ast.Module) -> Iterator[ast.expr]:
    """What is passed as ``code``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "code")


def constants() -> dict[str, str]:
    """Strings that modules have under a name in capitals."""
    found = {}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                found |= {name.id: node.value.value for name in node.targets if isinstance(name, ast.Name)}
    return found


def source_codes() -> set[str]:
    """The codes that any call names."""
    named, codes = constants(), set()
    for path in MODULES:
        for value in arguments(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(value, ast.Constant):
                codes.add(value.value)
            elif isinstance(value, ast.Name) and value.id in named:
                codes.add(named[value.id])
            else:
                assert ast.unparse(value) in HANDED_ON, f"{path}: which code is {ast.unparse(value)}?"
    return {code for code in codes if code is not None}


def table() -> list[tuple[str, str]]:
    """(status, codes) of the rows of the table of errors."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rows = page.partition("| status | `code` | when |\n|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    return [(cells[1], cells[2]) for cells in (row.split("|") for row in rows)]


def test_the_table_has_every_code_and_no_other() -> None:
    listed = {code for _, codes in table() for code in re.findall(r"`([a-z_]+)`", codes)} - {"null"}
    assert listed == source_codes()


@pytest.mark.parametrize(("status", "codes"), table())
def test_every_row_names_a_code(status: str, codes: str) -> None:
    assert re.search(r"`[a-z_]+`", codes), status
