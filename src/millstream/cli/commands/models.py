"""`pull`, `list`, `show` and `rm`: models by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.names import model_names

JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")]


def pull(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Names that `list` shows.", autocompletion=model_names)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All models of the catalogue.")] = False,
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="Put them here instead of the model cache.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Don't print the paths.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Progress and result as lines of JSON.")] = False,
) -> None:
    """Fetch models (without a name: the default one) and print where they are."""
    from millstream.cli.models import pull_models

    pull_models(names or [], every=every, folder=to, quiet=quiet, as_json=as_json)


def list_(as_json: JsonOption = False) -> None:
    """List the models that are here and those that can be pulled."""
    from millstream.cli.models import list_models

    list_models(as_json=as_json)


def show(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="A .gguf file, or a name that `list` shows as here; the default if not given."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what a model is, how it talks, and what memory it takes."""
    from millstream.cli.show import show_model

    show_model(model, as_json=as_json)


def rm(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names that `list` shows as here.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Delete models from the model folder; files elsewhere are never touched."""
    from millstream.cli.models import remove_models

    remove_models(names, yes=yes)
