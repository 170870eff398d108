"""`config`: which settings hold, where they come from, and a file to begin with."""

from __future__ import annotations

from typing import Annotated, cast

import typer
from typer.core import TyperGroup

config_app = typer.Typer(name="config", no_args_is_help=True, help="Show, check and write the configuration file.")


@config_app.command("path")
def path_(context: typer.Context) -> None:
    """Print which file is read."""
    from millstream.cli.configuration.files import chosen_path

    path, _ = chosen_path(_given(context))
    print(path or "")


@config_app.command()
def check(context: typer.Context) -> None:
    """Check the file and the environment. Exit code 2 if something is wrong."""
    from millstream.cli.configuration.files import ConfigError, chosen_path
    from millstream.cli.configuration.group import check_variables, load_settings, unknown_variables
    from millstream.cli.errors import USAGE
    from millstream.cli.terminal import report

    root = _root(context)
    problems = []
    found = None
    try:
        found = load_settings(root, _given(context))
    except ConfigError as error:
        problems += error.problems
    try:
        check_variables(root)
    except ConfigError as error:
        problems += error.problems
    problems += unknown_variables(root)
    for problem in problems:
        report(problem)
    if problems:
        raise typer.Exit(USAGE)
    path, _ = chosen_path(_given(context))
    if found is None:
        print(f"{path}: there is no file")
    else:
        count = len(found.written)
        print(f"{path}: {count} setting{'' if count == 1 else 's'}, all known")


@config_app.command()
def show(
    context: typer.Context,
    command: Annotated[str | None, typer.Argument(metavar="COMMAND", help="Only this command's.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Defaults too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON, defaults included.")] = False,
) -> None:
    """Show which settings hold and where each comes from."""
    import msgspec

    from millstream.cli.configuration.check import suggestion
    from millstream.cli.configuration.files import ConfigError
    from millstream.cli.configuration.group import check_variables, load_settings
    from millstream.cli.configuration.show import effective
    from millstream.cli.errors import USAGE, CliError

    root = _root(context)
    try:
        check_variables(root)
        rows = effective(root, load_settings(root, _given(context)))
    except ConfigError as error:
        raise CliError("; ".join(error.problems), code=USAGE) from None
    known = {row.command.split()[0] for row in rows}
    if command is not None and command not in known:
        raise typer.BadParameter(f"there is no command {command!r}{suggestion(command, known)}")
    rows = [row for row in rows if command is None or row.command.split()[0] == command]
    if as_json:
        print(msgspec.json.encode(rows, enc_hook=str).decode())
        return
    shown = [row for row in rows if every or row.source != "default"]
    for row in shown:
        value = "(not set)" if row.value is None else msgspec.json.encode(row.value, enc_hook=str).decode()
        print(f"{row.command} {row.option} = {value}  ({row.place or 'default'})")
    if not shown:
        what, which = ("everything", "") if command is None else (f"all of {command}", f" {command}")
        print(f"{what} is at its default; `config show{which} --all` lists them, `config init` writes a file")


@config_app.command()
def init(
    context: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print it instead.")] = False,
) -> None:
    """Write a file with every option as a comment."""
    from millstream.cli.configuration.files import chosen_path
    from millstream.cli.configuration.show import starting_file
    from millstream.cli.errors import CliError

    text = starting_file(_root(context))
    if stdout:
        print(text, end="")
        return
    path, _ = chosen_path(_given(context))
    if path is None:
        raise CliError("MILLSTREAM_CONFIG is empty, so there is no file; give one with --config")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CliError(f"{path} is there already; --force writes over it") from None
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from None
    print(path)


def _root(context: typer.Context) -> TyperGroup:
    return cast(TyperGroup, context.find_root().command)


def _given(context: typer.Context) -> str | None:
    from millstream.cli.configuration.group import given_file

    return given_file(context)
