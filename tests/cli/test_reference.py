"""The pages about the command line say what the commands say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import cast

import typer
from typer.core import TyperGroup

from millstream.cli.app import app
from millstream.cli.configuration.check import checked
from millstream.cli.configuration.files import read_file
from millstream.cli.configuration.options import commands_of
from millstream.cli.reference import reference

DOCS = Path(__file__).parents[2] / "docs"
ROOT = cast(TyperGroup, typer.main.get_command(app))


def test_the_reference_is_what_the_commands_say() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert page == reference(ROOT), "write it anew: python -m millstream.cli.reference > docs/cli.md"


def test_the_example_file_is_sound(tmp_path: Path) -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "config.toml"
    path.write_text(example)
    file = read_file(path, must_exist=True)
    assert file is not None
    assert set(checked(ROOT, file).values) == {("serve",), ("run",)}


def test_the_commands_on_the_page_are_there() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    commands = dict(commands_of(ROOT))
    lines = re.findall(r"^millstream ([^#\n]*)|`millstream ([^`]*)`", page, re.MULTILINE)
    assert len(lines) >= 10
    for block, inline in lines:
        words = [word for word in shlex.split(block or inline) if word not in ("[COMMAND]",)]
        path = next(path for path in (tuple(words[:2]), tuple(words[:1])) if path in commands)
        known = {name for each in commands[path].params for name in each.opts}
        assert [word for word in words if word.startswith("-") and word not in known] == []
