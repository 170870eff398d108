"""Where the published models that tests use are on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

DEFAULT_MODEL = "smollm2"
REAL_MODELS = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "qwen2.5-coder": "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
    "gemma3": "gemma-3-270m.Q4_K_M.gguf",
}


def real_model(name: str) -> Path | None:
    """The file of a model of `REAL_MODELS`, or None.

    Looked for in ``MILLSTREAM_TEST_MODELS`` (only there if it is set), else in ``~/.cache/millstream-test-models`` and
    in Millstream's own model cache, at any depth.
    """
    for folder in _folders():
        for path in sorted(folder.rglob(REAL_MODELS[name])):
            return path
    return None


def _folders() -> list[Path]:
    if chosen := os.environ.get("MILLSTREAM_TEST_MODELS"):
        return [Path(chosen)]
    home = os.environ.get("MILLSTREAM_HOME") or platformdirs.user_cache_dir("millstream")
    return [Path.home() / ".cache" / "millstream-test-models", Path(home)]
