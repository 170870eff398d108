"""The model: its file, and whether this machine has the memory for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from millstream.cli.doctor.findings import Finding, ok, problem, size, warning
from millstream.cli.doctor.machine import memory_limit

_BESIDE = 300 << 20
"""Bytes that the server and the engine take besides weights and KV cache: interpreters, tokenizer, activations."""


def check_model(ref: str | None) -> Iterator[Finding]:
    """``ref``: as for `serve`; a model that is not here is no problem if it can be fetched."""
    from millstream.models.catalogue import DEFAULT_MODEL, ModelUnavailable, cached_model, find_model, resolve_model

    try:
        path = resolve_model(ref)
    except ModelUnavailable as error:
        known = find_model(ref or DEFAULT_MODEL)
        if known is not None and cached_model(known) is None:
            mend = f"millstream pull {known.name} ({size(known.download_bytes)})"
            yield warning("model", f"{known.name} is not here", mend)
        else:
            yield problem("model", str(error), "`millstream list` shows the names; or give the path of a .gguf file")
        return
    yield from _file(path)


def _file(path: Path) -> Iterator[Finding]:
    from millstream.models.catalogue import CATALOGUE
    from millstream.models.errors import ModelFileError
    from millstream.models.loader import load_model_file

    known = next((model for model in CATALOGUE if model.filename == path.name), None)
    if known is not None:
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            yield problem("model", f"{path} cannot be read: {error.strerror}", f"chmod u+r {path}")
            return
        if digest != known.sha256:
            mend = f"remove it and fetch it again: millstream pull {known.name}"
            yield problem("model", f"{path} is not the {known.name} of the catalogue: it is damaged or changed", mend)
    try:
        with load_model_file(path) as model:
            spec = model.spec
    except (ModelFileError, OSError) as error:
        yield problem("model", str(error), "fetch the file again, or take another model")
        return
    checked = ", checksum right" if known is not None else ""
    yield ok("model", f"{path}, {size(path.stat().st_size)}{checked}, context {spec.context_length}")
    from millstream.engine.sizing import DEFAULT_KV_BYTES, available_memory, kv_bytes_per_token

    free = available_memory()
    limit = memory_limit()
    free = free if limit is None else min(free, limit)
    weights, token = path.stat().st_size, kv_bytes_per_token(spec)
    need = weights + _BESIDE + min(DEFAULT_KV_BYTES, token * spec.context_length)
    text = f"needs about {size(need)}, {size(free)} are free; {size(token)} of KV cache per token"
    if free < weights + _BESIDE:
        yield problem("memory", text, "end other programs, take a smaller model, or a machine with more memory")
    elif free < need:
        mend = "the KV cache will be smaller: fewer requests at once, or a shorter context (--ctx)"
        yield warning("memory", text, mend)
    else:
        yield ok("memory", text)
