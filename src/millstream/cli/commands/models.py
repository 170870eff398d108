"""`pull` and `list`: models by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.names import model_names


def pull(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names that `list` shows.", autocompletion=model_names)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All models of the catalogue.")] = False,
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="Put them here instead of the model cache.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Don't print the paths.")] = False,
) -> None:
    """Fetch models (without a name: the default one) and print where they are."""
    from millstream.cli.models import pull_models

    pull_models(names or [], every=every, folder=to, quiet=quiet)


def list_() -> None:
    """List the models that are here and those that can be pulled."""
    from millstream.cli.models import list_models

    list_models()
