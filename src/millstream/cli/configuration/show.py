"""Effective settings with their sources, and a file to begin with."""

from __future__ import annotations

import os
import textwrap
from typing import Any, Literal

import msgspec
from typer.core import TyperGroup

from millstream.cli.configuration.check import FromFile, convert
from millstream.cli.configuration.options import Command, Setting, commands_of, help_of, settings_of

Source = Literal["environment", "file", "default"]
_WIDTH = 100
_HIDDEN = "(hidden)"


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """What a command would get if its line said nothing. ``place``: the variable or ``FILE:LINE``; None for a default.
    ``value`` None: the command decides."""

    command: str
    option: str
    value: Any
    source: Source
    place: str | None = None


def effective(root: TyperGroup, found: FromFile | None) -> list[Effective]:
    """Every setting of every command; values of secrets are hidden."""
    commands = dict(commands_of(root))
    return [_effective(setting, commands[setting.path], found) for setting in settings_of(root)]


def _effective(setting: Setting, command: Command, found: FromFile | None) -> Effective:
    value, source, place = _value(setting, command, found)
    if setting.secret and value is not None:
        value = _HIDDEN
    return Effective(command=" ".join(setting.path), option=setting.key, value=value, source=source, place=place)


def _value(setting: Setting, command: Command, found: FromFile | None) -> tuple[Any, Source, str | None]:
    for name in setting.variables:
        if text := os.environ.get(name):
            return _meant(setting, command, text.split() if setting.many else text), "environment", name
    if found is not None and (written := found.written.get(setting.name)):
        return written.value, "file", written.place
    return _default(setting), "default", None


def _meant(setting: Setting, command: Command, spoken: Any) -> Any:
    """A number or a truth value as such, as in the file; anything else as it was written."""
    try:
        value = convert(setting, command, spoken)
    except ValueError:
        return spoken
    return value if isinstance(value, int | float) else spoken


def _default(setting: Setting) -> Any:
    default = setting.parameter.default
    if default is None or callable(default) or default == ():
        return None
    return default if isinstance(default, str | int | float | list) else str(default)


def starting_file(root: TyperGroup) -> str:
    """A file that sets nothing: every option as a comment, with its help, its default and its variable."""
    parts = [
        "# Settings of Millstream. Take the # away from what you set.\n"
        "# A command line beats an environment variable, a variable beats this file, this file beats the default.\n"
    ]
    path: tuple[str, ...] = ()
    for setting in settings_of(root):
        if setting.path != path:
            path = setting.path
            parts.append(f"\n[{'.'.join(path)}]\n")
        parts.append(_commented(setting))
    return "\n".join(parts)


def _commented(setting: Setting) -> str:
    lines = textwrap.wrap(help_of(setting.parameter), _WIDTH, initial_indent="# ", subsequent_indent="# ")
    default = _default(setting)
    example = _toml(default) if default is not None else _blank(setting)
    return "\n".join([*lines, f"# Environment: {setting.variable}", f"#{setting.key} = {example}", ""])


def _blank(setting: Setting) -> str:
    """What is to be put in for an option that has no default."""
    metavar = (setting.parameter.metavar or setting.key.upper()).strip("[].")
    return f"[{metavar}, ...]" if setting.many else metavar


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return msgspec.json.encode(str(value)).decode()  # a JSON string is a TOML string
