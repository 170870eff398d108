"""The models of one machine by name: those of the catalogue, and files that somebody put into the model folder.

A name is only ever looked up in this listing; it is never made into a path.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from millstream.models.catalogue import CATALOGUE, CatalogueModel, cached_model, model_folder


class ShelfModel(msgspec.Struct, frozen=True, kw_only=True):
    """``path`` None: it is not here. ``size``: bytes of the file, also of one that is not here yet. ``origin`` None: it
    cannot be fetched."""

    name: str
    title: str
    license: str
    size: int
    path: Path | None
    origin: CatalogueModel | None = None


def shelf(folder: Path | None = None, catalogue: tuple[CatalogueModel, ...] = CATALOGUE) -> dict[str, ShelfModel]:
    """All models by name: the catalogue in its order, then other ``.gguf`` files of the folder (default: the model
    folder). Of two files whose names make the same id, the first in order of their names has it."""
    folder = folder or model_folder()
    found = {
        model.name: ShelfModel(
            name=model.name,
            title=model.title,
            license=model.license,
            size=model.size,
            path=cached_model(model, folder),
            origin=model,
        )
        for model in catalogue
    }
    fetched = {model.filename for model in catalogue}
    for path, size in _files(folder):
        name = model_id(path.stem)
        if path.name not in fetched and name not in found:
            found[name] = ShelfModel(name=name, title=path.stem, license="", size=size, path=path)
    return found


def name_of(path: Path) -> str:
    """What a model file is called: the catalogue's name of a fetched model, else its own made into an id."""
    for model in CATALOGUE:
        if path.name == model.filename:
            return model.name
    return model_id(path.stem)


def model_id(text: str) -> str:
    """A text as an id: letters, digits and ``. _ -``, other runs of characters become one hyphen."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "model"


def _files(folder: Path) -> list[tuple[Path, int]]:
    """Model files of a folder with their sizes. What vanishes or cannot be looked at is left out."""
    files = []
    try:
        paths = sorted(folder.glob("*.gguf"))
    except OSError:
        return []
    for path in paths:
        try:
            if path.is_file() and not path.name.startswith("."):
                files.append((path, path.stat().st_size))
        except OSError:
            continue
    return files
