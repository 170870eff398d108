"""What the project depends on: in pinned ranges, each for a reason, and audited."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = PROJECT["dependency-groups"]
REQUIREMENTS = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(each for group in GROUPS.values() for each in group if isinstance(each, str)),
]


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_every_dependency_has_a_lower_and_an_upper_bound(requirement: str) -> None:
    """A new major version comes by a change of this file, not by itself."""
    assert re.fullmatch(r"[a-z0-9-]+(\[[a-z,]+\])?>?=?\d*[\d.]*,?<?=?\d+(\.\d+)*(; .+)?", requirement), requirement
    assert ">=" in requirement
    assert ",<" in requirement


OPTIONAL = [each for extra in PROJECT["project"]["optional-dependencies"].values() for each in extra]


@pytest.mark.parametrize("requirement", sorted({*REQUIREMENTS, *OPTIONAL}))
def test_every_dependency_has_its_reason(requirement: str) -> None:
    name = re.split(r"[\[>=<;]", requirement)[0]
    table = (ROOT / "docs" / "architecture.md").read_text().partition("## Dependencies")[2]
    assert re.search(rf"^\| [^|]*\b{re.escape(name)}\b[^|]*\|", table, re.IGNORECASE | re.MULTILINE), name


@pytest.mark.parametrize(
    ("tool", "code", "words"),
    [
        ("exit 0", 0, "no known vulnerabilities in 1 packages"),
        ("echo 'jinja2 3.0 CVE-1'; exit 1", 1, "jinja2 3.0 CVE-1"),
        ("echo 'ConnectionError: no route' >&2; exit 1", 3, "nothing was audited"),
    ],
)
def test_what_the_audit_says(tmp_path: Path, tool: str, code: int, words: str) -> None:
    """With the tool played: what it finds, finds nothing of, and cannot reach."""
    for name, script in (("venv/bin/python", "echo jinja2==3.0"), ("venv-audit/bin/pip-audit", tool)):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "tools" / "audit.sh"), str(tmp_path / "venv")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr
