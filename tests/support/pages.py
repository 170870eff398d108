"""Documentation as a test sees it: pages cut into blocks of code, and what their authors said about each.

A block is run unless a comment before it says who does: ``<!-- not run: REASON -->``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

RUN = ("sh", "console", "python")
"""Languages whose blocks are run; in ``console`` lines after ``$`` are commands, and the others what they print."""

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<language>[\w-]*)[^\n]*$")
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+?) -->")
_COMMAND = re.compile(r"^(?: {4}|\t)(?:\$ )?(?:\.venv/bin/)?(?:millstream|curl|make|pip|npm|python|git) ")


class Block(NamedTuple):
    """``line``: of its fence, from 1. ``not_run``: why, if its author says so."""

    line: int
    language: str
    text: str
    not_run: str | None


class Command(NamedTuple):
    """One shell command and the lines that it prints (None: whatever)."""

    text: str
    output: list[str] | None


def pages() -> list[Path]:
    """The README and every page below docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    opened: tuple[int, str, str, str | None] | None = None
    body: list[str] = []
    reason: str | None = None
    indent = 0
    for number, line in enumerate(page.splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, body, indent = (number, fence["fence"], fence["language"], reason), [], len(fence["indent"])
        elif opened is not None and line.strip() == opened[1]:
            found.append(Block(opened[0], opened[2], "\n".join(body) + "\n", opened[3]))
            opened = reason = None
        elif opened is not None:
            body.append(line[indent:])
        elif said := _NOT_RUN.search(line):
            reason = said["reason"]
        elif line.strip():
            reason = None
    assert opened is None, f"the block at line {opened and opened[0]} has no end"
    return found


def indented_commands(page: str) -> list[tuple[int, str]]:
    """Commands in blocks without a fence, which nobody would run."""
    inside = False
    found = []
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside and _COMMAND.match(line):
            found.append((number, line.strip()))
    return found


def commands(block: Block) -> list[Command]:
    """What a block asks the shell to do. A line that ends with a backslash, or leaves a quote open, goes on."""
    if block.language != "console":
        return [Command(block.text, None)]
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], []))
        elif found and _goes_on(found[-1].text):
            found[-1] = Command(f"{found[-1].text}\n{line}", [])
        elif found and found[-1].output is not None:
            found[-1].output.append(line)
    return found


def _goes_on(command: str) -> bool:
    return command.endswith("\\") or command.count("'") % 2 == 1 or "<<" in command.split("\n")[-1]


def matches(expected: list[str], printed: str) -> bool:
    """Whether the lines were printed, in this order; ``...`` in a line stands for anything, on several lines too."""
    pattern = r"\s+".join(
        ".*?".join(re.escape(" ".join(part.split())).replace(r"\ ", r"\s+") for part in line.split("..."))
        for line in expected
        if line.strip()
    )
    return re.search(pattern, printed, re.DOTALL) is not None
