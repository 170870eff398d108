"""The root of the commands, which lets a file and the environment speak before the defaults do."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from copy import copy
from functools import cache
from typing import Any, ClassVar, cast

import typer
from typer.core import TyperGroup, TyperOption

from millstream.cli.configuration.check import FromFile, checked, convert, suggestion
from millstream.cli.configuration.files import ConfigError, chosen_path, read_file
from millstream.cli.configuration.options import (
    ENVIRONMENT_PREFIX,
    Command,
    command_at,
    commands_at,
    commands_of,
    settings_at,
    settings_of,
)
from millstream.cli.errors import USAGE, CliError
from millstream.cli.lazy import LazyCommands
from millstream.cli.terminal import report

CONFIG_HELP = "Read settings from this file instead of the usual one; `config path` prints which that is."
_GIVEN = "millstream.config"
"""Where the context keeps what ``--config`` said before the command."""

WITHOUT_FILE = ("config", "doctor", "completion")
"""Commands that must work when the file is broken, as they are how one finds out."""


class ConfiguredGroup(TyperGroup):
    """A group all of whose commands, at any depth, take ``--config``, and whose options the environment can set.

    ``places``: see `LazyCommands`.
    """

    places: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands(self.places, self._configure)
        self.params.append(_config_option(self, ()))

    def _configure(self, name: str, made: Command) -> None:
        for path, command in commands_at(made, (name,)):
            for setting in settings_at(path, command):
                if isinstance(setting.parameter, TyperOption) and not setting.parameter.envvar:
                    setting.parameter.show_envvar = False  # as all have one, the help of each need not say so
                setting.parameter.envvar = setting.variables
            command.params.append(_config_option(self, path))


def _config_option(root: TyperGroup, path: tuple[str, ...]) -> TyperOption:
    """``--config``. It is eager, so it runs before other parameters look for their values, and can set the defaults."""

    def load(context: typer.Context, _: object, given: str | None) -> None:
        if context.resilient_parsing:
            return
        if given is not None:
            context.meta[_GIVEN] = given
        if path:
            context.default_map = _defaults(root, path, given_file(context))

    option = copy(_plain_option())
    option.callback = cast(Any, load)
    return option


def _defaults(root: TyperGroup, path: tuple[str, ...], given: str | None) -> dict[str, Any]:
    """What takes the place of a command's defaults. Raises `CliError` (2): the file or the environment is wrong."""
    if path[0] in WITHOUT_FILE:
        return {}
    try:
        for line in unknown_variables(root, path):
            print(f"warning: {line}", file=sys.stderr)
        check_variables(root, path)
        found = load_settings(root, given)
    except ConfigError as error:
        *others, last = error.problems
        for line in others:
            report(line)
        raise CliError(last, code=USAGE) from None
    return found.values.get(path, {}) if found is not None else {}


@cache
def _plain_option() -> TyperOption:
    """An option of the class that the installed Typer makes."""
    holder = typer.Typer(add_completion=False)

    @holder.command()
    def _(
        config: str | None = typer.Option(
            None, "--config", metavar="FILE", help=CONFIG_HELP, is_eager=True, expose_value=False
        ),
    ) -> None: ...

    (option,) = (each for each in typer.main.get_command(holder).params if each.name == "config")
    return cast(TyperOption, option)


def check_variables(root: TyperGroup, path: tuple[str, ...] | None = None) -> None:
    """Look at the environment variables that set something (of the command ``path``, or of any).

    Raises:
        ConfigError: they hold what their options do not take.
    """
    problems = []
    for setting in settings_of(root, path):
        name = next((name for name in setting.variables if os.environ.get(name)), None)
        if name is None:
            continue
        text = os.environ[name]
        try:
            convert(setting, command_at(root, setting.path), text.split() if setting.many else text)
        except ValueError as error:
            problems.append(f"the environment variable {name} {error}")
    if problems:
        raise ConfigError(problems)


def given_file(context: typer.Context) -> str | None:
    """What ``--config`` says, before the command or behind it."""
    return cast("str | None", context.meta.get(_GIVEN))


def load_settings(root: TyperGroup, given: str | None) -> FromFile | None:
    """What the file says that ``given`` (``--config``), the environment or the usual place means; None without one.

    Raises:
        ConfigError: it is named and not there, cannot be read, or says what no command understands.
    """
    path, named = chosen_path(given)
    file = read_file(path, must_exist=named) if path is not None else None
    return checked(root, file) if file is not None else None


def unknown_variables(root: TyperGroup, path: tuple[str, ...] | None = None) -> list[str]:
    """A line for every environment variable that looks like a setting (of the command ``path``, or of any) and is
    none."""
    paths = [command for command, _ in commands_of(root)] if path is None else [path]
    prefixes = tuple("_".join((ENVIRONMENT_PREFIX, *words)).replace("-", "_").upper() + "_" for words in paths)
    named = [name for name in sorted(os.environ) if name.startswith(prefixes)]
    if not named:
        return []
    known = {name for setting in settings_of(root) for name in setting.variables}
    return [f"{name} sets nothing{suggestion(name, known)}" for name in named if name not in known]
