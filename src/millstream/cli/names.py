"""What the shell completes where a model is named. It runs at every press of Tab, so it imports little."""

from __future__ import annotations

import contextlib


def model_names(incomplete: str) -> list[str]:
    """Names of the catalogue, and files in the model folder, that begin so."""
    from millstream.models.catalogue import CATALOGUE, model_folder

    names = [model.name for model in CATALOGUE]
    known = {model.filename for model in CATALOGUE}
    with contextlib.suppress(OSError):  # no folder, no names
        names += sorted(str(path) for path in model_folder().glob("*.gguf") if path.name not in known)
    return [name for name in names if name.startswith(incomplete)]
