"""The pages about the command line say what the commands say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import cast

import pytest
import typer
from typer.core import TyperArgument, TyperGroup

from millstream.cli.app import app
from millstream.cli.configuration.check import checked
from millstream.cli.configuration.files import read_file
from millstream.cli.configuration.options import commands_of
from millstream.cli.configuration.show import starting_file
from millstream.cli.reference import reference
from support.pages import pages

DOCS = Path(__file__).parents[2] / "docs"
ROOT = cast(TyperGroup, typer.main.get_command(app))


def test_the_reference_is_what_the_commands_say() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert page == reference(ROOT), "write it anew: python -m millstream.cli.reference > docs/cli.md"


def test_usages_show_what_may_be_given_once_and_what_often() -> None:
    told = reference(ROOT)
    for line in (
        "serve [OPTIONS] [MODEL...]", "pull [OPTIONS] [NAME...]", "rm [OPTIONS] NAME...", "show [OPTIONS] [MODEL]",
        "bench http [OPTIONS] URL...", "run [OPTIONS] PROMPT",
    ):  # fmt: skip
        assert f"`millstream {line}`" in told
    for path, command in commands_of(ROOT):
        for argument in command.params:
            if isinstance(argument, TyperArgument):
                shown = argument.metavar or ""
                assert re.fullmatch(r"[A-Z]+" + (r"\.\.\." if argument.nargs != 1 else ""), shown), path


def test_no_page_shows_how_markup_is_escaped() -> None:
    for text in (reference(ROOT), starting_file(ROOT)):
        assert "`millstream[otel]`" in text
        assert "\\[" not in text


def test_the_example_file_is_sound(tmp_path: Path) -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "config.toml"
    path.write_text(example)
    file = read_file(path, must_exist=True)
    assert file is not None
    assert set(checked(ROOT, file).values) == {("serve",), ("run",)}


_COMMANDS = re.compile(r"^(?:\$ |sudo )?(?:\S*/)?millstream ([^#|><&\n]*)|`(?:\S*/)?millstream ([^`]*)`", re.MULTILINE)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_commands_on_a_page_are_there(page: Path) -> None:
    """In blocks that are not run, and in sentences, too."""
    commands = dict(commands_of(ROOT))
    groups = {path[:1] for path in commands}
    always = {"-", "--config", "--help"}
    for block, inline in _COMMANDS.findall(page.read_text(encoding="utf-8")):
        words = shlex.split(block or inline)
        # `bench` alone is that of the engine.
        names = (tuple(words[:2]), tuple(words[:1]), (words[0], "engine"))
        name = next((name for name in names if name in commands), None)
        assert name or tuple(words[:1]) in groups or words[0].startswith("-"), words
        parameters = commands[name].params if name else []
        known = always.union(*([*each.opts, *each.secondary_opts] for each in parameters))
        assert [word for word in words if word.startswith("-") and word not in known] == [], words


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_options_in_sentences_are_there(page: Path) -> None:
    known = {
        option
        for _, command in commands_of(ROOT)
        for each in command.params
        for option in (*each.opts, *each.secondary_opts)
    }
    sentences = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for code in re.findall(r"`((?:--|(?:serve|millstream) )[^`]*)`", sentences):
        assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", code)) <= known | {"--help"}, code
