"""The page of all commands and options (docs/cli.md), written from their definitions.

python -m millstream.cli.reference > docs/cli.md
"""

from __future__ import annotations

import inspect
from typing import cast

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from millstream.cli.configuration.options import Command, Parameter, commands_of, help_of

_HEAD = """\
# Command line

Written by `python -m millstream.cli.reference > docs/cli.md`; a test holds the page to the commands.

Every option can also be set by an environment variable or in a file, see [configuration](configuration.md). `--config
FILE` goes with every command. Where there is `--json`, standard output is JSON and nothing else; notes, warnings and
errors go to standard error. A typing error in a command or an option is answered with the nearest that there is.

| exit code | meaning |
|---|---|
| 0 | done; for `serve`: stopped by Ctrl-C or SIGTERM after the open requests were finished |
| 1 | failed, standard error says why in one line; for `lint`, `selftest`, `doctor` and `replay`: something was found |
| 2 | the command line, the environment or the configuration file is wrong |
| 130 | interrupted by Ctrl-C |
"""


def reference(root: TyperGroup) -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_command(path, command) for path, command in commands_of(root))])


def _command(path: tuple[str, ...], command: Command) -> str:
    arguments = [each for each in command.params if isinstance(each, TyperArgument)]
    options = [each for each in command.params if isinstance(each, TyperOption) and each.name != "config"]
    usage = " ".join(["millstream", *path, *(["[OPTIONS]"] if options else []), *map(_usage, arguments)])
    lines = [f"## {' '.join(path)}", "", f"`{usage}`", "", inspect.cleandoc(command.help or ""), ""]
    if rows := [*map(_argument, arguments), *map(_option, options)]:
        lines += ["| | default | |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _usage(argument: TyperArgument) -> str:
    return _name(argument) if argument.required else f"[{_name(argument)}]"


def _name(argument: TyperArgument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _argument(argument: TyperArgument) -> str:
    return f"| `{_name(argument)}` | {_default(argument)} | {_cell(help_of(argument))} |"


def _option(option: TyperOption) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    metavar = "" if option.is_flag else f" `{_cell(option.metavar or (option.name or '').upper())}`"
    return f"| {names}{metavar} | {_default(option)} | {_cell(help_of(option))} |"


def _default(parameter: Parameter) -> str:
    default = parameter.default
    return "" if default in (None, False) or callable(default) else f"`{default}`"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    from millstream.cli.app import app

    print(reference(cast(TyperGroup, typer.main.get_command(app))), end="")
