"""Commands that are imported and built once somebody asks for them: to build all takes longer than most of them run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, cast

import typer

from millstream.cli.configuration.options import Command


class LazyCommands(MutableMapping[str, Command]):
    """The commands of a group by name, each made when it is first read.

    ``places``: by name, where the command is: ``module:function`` or ``module:app``. ``made`` is called with the name
    and each new command.
    """

    def __init__(self, places: Mapping[str, str], made: Callable[[str, Command], None]) -> None:
        self._commands: dict[str, Command] = dict.fromkeys(places)
        self._places = places
        self._made = made

    def __getitem__(self, name: str) -> Command:
        command = self._commands[name]
        if command is None:
            command = self._commands[name] = _command(name, self._places[name])
            self._made(name, command)
        return command

    def __setitem__(self, name: str, command: Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)

    def __contains__(self, name: object) -> bool:
        return name in self._commands


def _command(name: str, place: str) -> Command:
    module, _, attribute = place.partition(":")
    found: Any = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = name
        return group
    holder = typer.Typer(add_completion=False)
    holder.command(name)(found)
    return cast(Command, typer.main.get_command(holder))
