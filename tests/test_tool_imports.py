"""The programs in tools/: what they take from the package is there."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

TOOLS = sorted((Path(__file__).parents[1] / "tools").glob("*.py"))


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.stem)
def test_what_a_tool_imports_exists(tool: Path) -> None:
    for node in ast.walk(ast.parse(tool.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("millstream"):
            module = importlib.import_module(str(node.module))
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert not missing, f"{node.module} has no {', '.join(missing)}"
