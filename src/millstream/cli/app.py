"""The commands, by where they are. Each lives in a module of its own, in `commands` or beside this one, which is
imported when the command is asked for and itself imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from millstream.cli.configuration.group import ConfiguredGroup


class Commands(ConfiguredGroup):
    """Every command there is, in the order of ``--help``."""

    places: ClassVar = {
        "serve": "millstream.cli.commands.serve:serve",
        "run": "millstream.cli.commands.talk:run",
        "chat": "millstream.cli.commands.talk:chat",
        "pull": "millstream.cli.commands.models:pull",
        "list": "millstream.cli.commands.models:list_",
        "show": "millstream.cli.commands.models:show",
        "rm": "millstream.cli.commands.models:rm",
        "top": "millstream.cli.top:top",
        "lint": "millstream.cli.lint:lint",
        "selftest": "millstream.cli.selftest:selftest",
        "doctor": "millstream.cli.commands.doctor:doctor",
        "completion": "millstream.cli.commands.completion:completion",
        "replay": "millstream.cli.commands.journal:replay",
        "bench": "millstream.cli.bench:bench",
        "journal": "millstream.cli.commands.journal:journal_app",
        "config": "millstream.cli.commands.config:config_app",
        "keys": "millstream.cli.keys:app",
    }


app = typer.Typer(
    name="millstream",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Serve open-weight language models on machines you own.",
    epilog="Exit codes: 0 done, 1 failed (stderr says why), 2 wrong usage, 130 interrupted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from millstream import __version__

        print(f"millstream {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
