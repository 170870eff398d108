"""Which package imports which: the table of docs/architecture.md, held against the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "millstream"
PAGE = ROOT / "docs" / "architecture.md"
EVERYTHING = "everything"


def rules() -> dict[str, set[str]]:
    """What each package may import, as the table says: packages, or modules of packages."""
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("## Rooms")[2].partition("\n## ")[0]
    found: dict[str, set[str]] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 3 or not cells[0].startswith("`"):
            continue
        allowed = {EVERYTHING} if cells[2].startswith(EVERYTHING) else set(re.findall(r"`([\w.]+)`", cells[2]))
        for name in re.findall(r"`(\w+)`", cells[0]):
            found[name] = allowed
    return found


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and full names of what a file imports of ours, whether at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.startswith("millstream."))


PACKAGES = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())


def test_the_table_has_every_package() -> None:
    assert sorted(rules()) == PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_the_way_of_the_table(package: str) -> None:
    allowed = rules()[package]
    if EVERYTHING in allowed:
        return
    wrong = []
    for path in sorted((SOURCE / package).rglob("*.py")):
        for line, name in imports(path):
            own = name.removeprefix("millstream.")
            if own.split(".")[0] == package or own == "__version__":
                continue
            if not any(own == one or own.startswith(f"{one}.") for one in allowed):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert wrong == []
