"""Where the published models that tests use are on this machine. `make test` fetches them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.models.catalogue import model_folder

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1"
QWEN = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M"
GEMMA = "gemma-3-270m.Q4_K_M"

DEFAULT_MODEL = "smollm2"
REAL_MODELS = {"smollm2": SMOLLM2, "qwen2.5-coder": QWEN, "gemma3": GEMMA}
"""Names that tests and goldens use, and the stems of the files."""


def find_real_model(name: str) -> Path | None:
    """The file of a model, by name or by stem; None if it is not here.

    Looked for in ``MILLSTREAM_TEST_MODELS`` (only there if it is set), else in ``~/.cache/millstream-test-models`` and
    in Millstream's own model cache, at any depth.
    """
    stem = REAL_MODELS.get(name, name)
    for folder in _folders():
        for path in sorted(folder.rglob(f"{stem}.gguf")):
            return path
    return None


def real_model(name: str) -> Path:
    """The file of a model; without it the test is skipped, or fails if it is the default model."""
    path = find_real_model(name)
    if path is None:
        missing = f"{REAL_MODELS.get(name, name)}.gguf is not on this machine: make test-models"
        if name in (DEFAULT_MODEL, SMOLLM2):
            pytest.fail(missing)
        pytest.skip(missing)
    return path


def _folders() -> list[Path]:
    if chosen := os.environ.get("MILLSTREAM_TEST_MODELS"):
        return [Path(chosen)]
    return [Path.home() / ".cache" / "millstream-test-models", model_folder()]
