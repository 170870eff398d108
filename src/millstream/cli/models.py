"""`pull` and `list`: the models that can be had by name, and those that are here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from millstream.cli.errors import CliError
from millstream.cli.fetching import fetch_shown
from millstream.cli.terminal import has_colour
from millstream.models.catalogue import (
    CATALOGUE,
    DEFAULT_MODEL,
    CatalogueModel,
    ModelUnavailable,
    cached_model,
    find_model,
    model_folder,
)


def pull_models(names: list[str], *, every: bool, folder: Path | None, quiet: bool) -> None:
    """Fetch what is not here yet and print one path a line. Every model is tried; `CliError` if one failed."""
    models = list(CATALOGUE) if every else [_named(name) for name in names or [DEFAULT_MODEL]]
    failures: list[str] = []
    for model in models:
        try:
            path = cached_model(model, folder) or fetch_shown(model, folder)
        except ModelUnavailable as error:
            failures.append(str(error))
            continue
        if not quiet:
            print(path)
    if failures:
        raise CliError("; ".join(failures))


def _named(name: str) -> CatalogueModel:
    model = find_model(name)
    if model is None:
        raise CliError(f"no model named {name!r}; known: {', '.join(known.name for known in CATALOGUE)}")
    return model


class _Row(NamedTuple):
    name: str
    size: str
    state: str
    about: str


def list_models() -> None:
    """Print a table of the catalogue and of other model files in the cache: aligned columns, one model a line."""
    rows = [_catalogue_row(model) for model in CATALOGUE]
    known = {model.filename for model in CATALOGUE}
    folder = model_folder()
    for path in sorted(folder.glob("*.gguf")):
        if path.name not in known:
            rows.append(_Row(str(path), f"{path.stat().st_size / 1e6:.0f} MB", "here", "put here by hand"))
    header = _Row("NAME", "SIZE", "STATE", "ABOUT")
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(3)]
    for row in (header, *rows):
        line = "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row.about))
        print(f"\x1b[1m{line}\x1b[0m" if row is header and has_colour(sys.stdout) else line)
    print(f"\nmodels are kept in {folder}")


def _catalogue_row(model: CatalogueModel) -> _Row:
    state = "here" if cached_model(model) else "can be pulled"
    default = ", the default" if model.name == DEFAULT_MODEL else ""
    return _Row(model.name, f"{model.size / 1e6:.0f} MB", state, f"{model.title} ({model.license}){default}")
