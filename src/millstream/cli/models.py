"""`pull`, `list` and `rm`: the models that can be had by name, and those that are here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer

from millstream.cli.errors import CliError
from millstream.cli.fetching import fetch_shown
from millstream.cli.terminal import has_colour, is_terminal, note
from millstream.ir.sizes import size
from millstream.models.catalogue import (
    CATALOGUE,
    DEFAULT_MODEL,
    CatalogueModel,
    ModelUnavailable,
    cached_model,
    find_model,
    model_folder,
)
from millstream.models.shelf import ShelfModel, shelf


def pull_models(names: list[str], *, every: bool, folder: Path | None, quiet: bool, as_json: bool) -> None:
    """Fetch what is not here yet and print one path a line, or how it goes as lines of JSON. Every model is tried;
    `CliError` if one failed."""
    models = list(CATALOGUE) if every else [_named(name) for name in names or [DEFAULT_MODEL]]
    failures: list[str] = []
    for model in models:
        try:
            path = cached_model(model, folder) or fetch_shown(model, folder, as_json=as_json)
        except ModelUnavailable as error:
            failures.append(str(error))
            if as_json:
                print_json({"model": model.name, "state": "failed", "error": str(error)})
            continue
        if as_json:
            print_json({"model": model.name, "state": "here", "path": str(path)})
        elif not quiet:
            print(path)
    if failures:
        raise CliError("; ".join(failures))


def list_models(*, as_json: bool) -> None:
    """Print the catalogue and the other model files of the cache: a table with aligned columns, or JSON."""
    models = shelf().values()
    if as_json:
        print_json([_entry(model) for model in models])
        return
    header = _Row("NAME", "SIZE", "STATE", "ABOUT")
    rows = [header, *(_row(model) for model in models)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        line = "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row.about))
        print(f"\x1b[1m{line}\x1b[0m" if row is header and has_colour(sys.stdout) else line)
    print(f"\nmodels are kept in {model_folder()}")


def remove_models(names: Sequence[str], *, yes: bool) -> None:
    """Delete model files from the model folder, after a question unless ``yes``.

    Raises:
        CliError: a name that no file here has (then nothing is deleted), nobody to ask, a file that cannot be deleted.
    """
    models = shelf()
    paths = {name: _here(name, models) for name in dict.fromkeys(names)}
    if not yes:
        if not is_terminal(sys.stdin):
            raise CliError("rm asks before it deletes, and there is nobody to ask; add --yes")
        whole = size(sum(path.stat().st_size for path in paths.values()))
        if not typer.confirm(f"Delete {', '.join(paths)} ({whole})?", err=True):
            raise CliError("nothing was deleted")
    for name, path in paths.items():
        try:
            path.unlink()
        except OSError as error:
            raise CliError(f"cannot delete {path}: {error.strerror}") from None
        note(f"deleted {name}")


def print_json(value: Any) -> None:
    """One line of JSON, at once."""
    print(msgspec.json.encode(value).decode(), flush=True)


def _here(name: str, models: Mapping[str, ShelfModel]) -> Path:
    """The file of a name, which is one of the listing: a path that a user types is never deleted."""
    model = models.get(name)
    if model is not None and model.path is not None:
        return model.path
    here = ", ".join(model.name for model in models.values() if model.path is not None) or "none"
    raise CliError(f"no model named {name!r} is in {model_folder()}; here: {here}")


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


def _row(model: ShelfModel) -> _Row:
    state = "here" if model.path is not None else "can be pulled"
    about = f"{model.title} ({model.license})" if model.origin is not None else "put here by hand"
    if model.name == DEFAULT_MODEL:
        about += ", the default"
    return _Row(model.name, size(model.size), state, about)


def _entry(model: ShelfModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "state": "on_disk" if model.path is not None else "available",
        "title": model.title,
        "license": model.license,
        "bytes": model.size,
        "download_bytes": model.origin.download_bytes if model.origin is not None else None,
        "path": None if model.path is None else str(model.path),
        "default": model.name == DEFAULT_MODEL,
    }
