"""What a file says, held against the commands' definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from millstream.cli.configuration.files import ConfigError, ConfigFile
from millstream.cli.configuration.options import Command, Setting, commands_of, settings_of

Values = dict[tuple[str, ...], dict[str, Any]]
"""By command: what the file says of its parameters, by their Python names, as a command line would say it."""


class Written(NamedTuple):
    """A value as the file has it, and ``FILE:LINE``."""

    value: Any
    place: str


class FromFile(NamedTuple):
    """What a sound file says: for the commands, and as it is written, by the setting's name."""

    values: Values
    written: dict[str, Written]


def checked(group: TyperGroup, file: ConfigFile) -> FromFile:
    """The file's values.

    Raises:
        ConfigError: unknown keys, values of the wrong type or out of range; all of them, each with its line.
    """
    check = _Check(group, file)
    check.table(file.data, ())
    if check.problems:
        raise ConfigError(check.problems)
    return FromFile(check.values, check.written)


class _Check:
    def __init__(self, group: TyperGroup, file: ConfigFile) -> None:
        self._file = file
        self._commands = dict(commands_of(group))
        self._settings = {(*setting.path, setting.key): setting for setting in settings_of(group)}
        self.values: Values = {}
        self.written: dict[str, Written] = {}
        self.problems: list[str] = []

    def table(self, data: dict[str, Any], above: tuple[str, ...]) -> None:
        """Check one table and those in it."""
        for written, value in data.items():
            path, raw = (*above, written.replace("_", "-")), (*above, written)
            setting = self._settings.get(path)
            if setting is not None:
                self._value(setting, value, raw)
            elif self._is_table(path):
                if isinstance(value, dict):
                    self.table(value, path)
                else:
                    self._problem(raw, f"is a command, so it takes a table: [{'.'.join(path)}]")
            else:
                self._problem(raw, self._unknown(path))

    def _is_table(self, path: tuple[str, ...]) -> bool:
        return any(command[: len(path)] == path for command in self._commands)

    def _value(self, setting: Setting, value: Any, raw: tuple[str, ...]) -> None:
        if setting.name in self.written:
            self._problem(raw, "is set twice, with a hyphen and with an underscore")
            return
        try:
            spoken = _as_spoken(setting, value)
            convert(setting, self._commands[setting.path], spoken)
        except ValueError as error:
            self._problem(raw, str(error))
            return
        self.values.setdefault(setting.path, {})[setting.parameter.name or ""] = spoken
        self.written[setting.name] = Written(value, self._file.place(*raw))

    def _problem(self, raw: tuple[str, ...], text: str) -> None:
        self.problems.append(f"{self._file.place(*raw)}: {'.'.join(raw)} {text}")

    def _unknown(self, path: tuple[str, ...]) -> str:
        above = path[:-1]
        depth = len(above)
        known = sorted({name[depth] for name in self._names() if len(name) > depth and name[:depth] == above})
        kind = "an option" if above else "a command"
        near = suggestion(path[-1], known)
        return f"is not {kind}{near or '.'} There are: {', '.join(known) or 'none'}"

    def _names(self) -> Iterator[tuple[str, ...]]:
        yield from self._settings
        yield from self._commands


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean …?`` for the nearest of ``known``, nothing if none is near."""
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def convert(setting: Setting, command: Command, spoken: Any) -> Any:
    """The value that the command would get. Raises `ValueError` with a reason."""
    context = typer.Context(command, info_name=setting.path[-1], resilient_parsing=True)
    try:
        return setting.parameter.process_value(context, spoken)
    except typer.BadParameter as error:
        raise ValueError(f"is wrong: {error.message.rstrip('.')}") from None


def _as_spoken(setting: Setting, value: Any) -> Any:
    """A TOML value as a command line would have it. Raises `ValueError` for one of the wrong kind."""
    if setting.is_flag:
        if isinstance(value, bool):
            return value
        raise ValueError(f"takes true or false, not {_kind(value)}")
    if setting.many:
        if isinstance(value, list) and all(map(_is_scalar, value)):
            return [str(item) for item in value]
        raise ValueError(f'takes a list, such as ["a", "b"], not {_kind(value)}')
    if _is_scalar(value):
        return str(value)
    raise ValueError(f"takes one value, not {_kind(value)}")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return f"the text {value!r}" if isinstance(value, str) else str(value)
