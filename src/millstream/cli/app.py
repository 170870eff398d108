"""The commands, mounted. Each lives in a module of its own, in `commands` or beside this one, and imports what it needs
when it runs, so that ``--help`` costs nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.bench import bench
from millstream.cli.commands.completion import completion
from millstream.cli.commands.config import config_app
from millstream.cli.commands.doctor import doctor
from millstream.cli.commands.journal import journal_app, replay
from millstream.cli.commands.models import list_, pull
from millstream.cli.commands.serve import serve
from millstream.cli.commands.talk import chat, run
from millstream.cli.configuration.group import ConfiguredGroup
from millstream.cli.keys import app as keys_app
from millstream.cli.lint import lint
from millstream.cli.selftest import selftest
from millstream.cli.top import top

app = typer.Typer(
    name="millstream",
    cls=ConfiguredGroup,
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


app.command()(serve)
app.command()(run)
app.command()(chat)
app.command()(pull)
app.command("list")(list_)
app.add_typer(bench, name="bench")
app.command()(top)
app.command()(lint)
app.command()(selftest)
app.command()(doctor)
app.command()(completion)
app.command()(replay)
app.add_typer(journal_app)
app.add_typer(config_app)
app.add_typer(keys_app, name="keys")
