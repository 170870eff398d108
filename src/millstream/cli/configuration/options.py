"""The options that a file and the environment can set, read off the commands' definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from typer.core import TyperArgument, TyperGroup, TyperOption

Parameter: TypeAlias = TyperArgument | TyperOption
Command: TypeAlias = Any
"""A command of Typer's tree; its class is Typer's private affair."""

ENVIRONMENT_PREFIX = "MILLSTREAM"
_SECRET = ("key", "token", "password", "secret")


class Setting(NamedTuple):
    """One option of one command.

    ``path``: the words of the command (``("keys", "create")``). ``key``: the option's long name, or the argument's, as
    a file writes it. ``variables``: environment variables that set it; the first that is set counts. The last is the
    one that every option has.
    """

    path: tuple[str, ...]
    key: str
    parameter: Parameter
    variables: tuple[str, ...]

    @property
    def name(self) -> str:
        """What messages call it: ``serve.port``."""
        return ".".join((*self.path, self.key))

    @property
    def variable(self) -> str:
        return self.variables[-1]

    @property
    def is_flag(self) -> bool:
        return isinstance(self.parameter, TyperOption) and self.parameter.is_flag

    @property
    def many(self) -> bool:
        """Whether it takes a list of values."""
        return self.parameter.nargs != 1 or bool(getattr(self.parameter, "multiple", False))

    @property
    def secret(self) -> bool:
        """Whether its value is not to be shown."""
        return self.key.endswith(_SECRET)


def commands_of(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Every command that does something, with the words that call it, in the order of ``--help``."""
    for name, command in group.commands.items():
        yield from commands_at(command, (*path, name))


def commands_at(command: Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Command]]:
    """The command that the words ``path`` call, or all below it if it is a group."""
    if isinstance(command, TyperGroup):
        yield from commands_of(command, path)
    else:
        yield path, command


def settings_of(group: TyperGroup, path: tuple[str, ...] | None = None) -> list[Setting]:
    """The settings of all commands, or of the one that ``path`` calls; others are then not even imported."""
    if path is None:
        return [setting for at, command in commands_of(group) for setting in settings_at(at, command)]
    return list(settings_at(path, command_at(group, path)))


def command_at(group: TyperGroup, path: tuple[str, ...]) -> Command:
    """The command that the words ``path`` call. Raises `KeyError`: there is none."""
    command: Command = group
    for word in path:
        command = command.commands[word]
    return command


def settings_at(path: tuple[str, ...], command: Command) -> Iterator[Setting]:
    """The settings of one command."""
    for parameter in command.params:
        # What must be given on every call, and what is answered before anything else, are no settings.
        if not isinstance(parameter, TyperArgument | TyperOption) or parameter.required or parameter.is_eager:
            continue
        key = key_of(parameter)
        variable = "_".join((ENVIRONMENT_PREFIX, *path, key)).replace("-", "_").upper()
        own = [parameter.envvar] if isinstance(parameter.envvar, str) else list(parameter.envvar or ())
        yield Setting(path, key, parameter, (*(name for name in own if name != variable), variable))


def help_of(described: Any) -> str:
    """The help of a parameter in one line, as `--help` shows it: what is escaped there from Rich's markup is plain."""
    return " ".join((getattr(described, "help", None) or "").split()).replace("\\[", "[")


def key_of(parameter: Parameter) -> str:
    """The long name of an option (``--kv-cache`` is ``kv-cache``), the name of an argument."""
    long = [option[2:] for option in parameter.opts if option.startswith("--")]
    return long[0] if long else (parameter.name or "").replace("_", "-")
