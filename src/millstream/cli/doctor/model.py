"""The model: its file, and whether this machine has the disk and the memory for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.doctor.findings import Finding, ok, problem, warning
from millstream.ir.sizes import size

if TYPE_CHECKING:
    from millstream.models.catalogue import CatalogueModel
    from millstream.models.loader import ModelFile

_OTHERS = "end other programs, take a smaller model, or a machine with more memory"


def check_model(ref: str | None) -> Iterator[Finding]:
    """``ref``: as for `serve`; a model that is not here is no problem if it can be fetched."""
    from millstream.models.catalogue import DEFAULT_MODEL, ModelUnavailable, cached_model, find_model, resolve_model

    try:
        path = resolve_model(ref)
    except ModelUnavailable as error:
        known = find_model(DEFAULT_MODEL if ref is None else ref)
        if known is not None and cached_model(known) is None:
            yield _missing(known)
        else:
            yield problem("model", str(error), "`millstream list` shows the names; or give the path of a .gguf file")
        return
    yield from _file(path)


def _missing(known: CatalogueModel) -> Finding:
    """A model that could be fetched, if the disk has room for it."""
    from millstream.cli.doctor.places import free_bytes
    from millstream.models.catalogue import model_folder
    from millstream.models.fetch import space_needed

    needed, free = space_needed(known), free_bytes(model_folder())
    if free < needed:
        return problem(
            "model",
            f"{known.name} is not here, and the disk has no room for it: {size(needed)} are needed, {size(free)} free",
            f"free {size(needed - free)} in {model_folder()}, or set MILLSTREAM_HOME to a folder on another disk",
        )
    fetch = f"millstream pull {known.name} ({size(known.download_bytes)} to fetch); serve does it when it starts"
    return warning("model", f"{known.name} is not here", fetch)


def _file(path: Path) -> Iterator[Finding]:
    from millstream.models.catalogue import CATALOGUE
    from millstream.models.errors import ModelFileError
    from millstream.models.loader import load_model_file

    known = next((model for model in CATALOGUE if model.filename == path.name), None)
    checked = ""
    if known is not None:
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            yield problem("model", f"{path} cannot be read: {error.strerror}", f"chmod u+r {path}")
            return
        checked = ", checksum right"
        if digest != known.sha256:
            checked = ""
            mend = f"remove it and fetch it again: millstream pull {known.name}"
            yield problem("model", f"{path} is not the {known.name} of the catalogue: it is damaged or changed", mend)
    try:
        with load_model_file(path) as model:
            spec = model.spec
            text = f"{path}, {size(path.stat().st_size)}{checked}, context {spec.context_length}"
            memory = _memory(model)
    except (ModelFileError, OSError) as error:
        yield problem("model", str(error), "fetch the file again, or take another model")
        return
    yield ok("model", text)
    yield memory


def _memory(model: ModelFile) -> Finding:
    """By the same rule as the server's own: it refuses a model that does not fit."""
    from millstream.engine.config import EngineConfig
    from millstream.engine.memory import memory_need
    from millstream.engine.sizing import available_memory

    rows = EngineConfig(model_path="", model_name="").max_rows
    need, free, context = memory_need(model, max_rows=rows), available_memory(), model.spec.context_length
    least, room = need.least(context, None), free - need.weights - need.working
    text = f"at least {size(least)} are needed, {size(free)} are free; {size(need.token)} of KV cache per token"
    if free < least:
        return problem("memory", text, _OTHERS)
    if room // 2 < need.token * context:
        fits = room // 2 // need.token
        mend = f"requests of up to {fits:,} of the model's {context:,} tokens will fit; for more, {_OTHERS}"
        return warning("memory", text, mend)
    return ok("memory", text)
