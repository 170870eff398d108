"""Where the real models are, for tests that need one."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1"
QWEN = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M"
GEMMA = "gemma-3-270m.Q4_K_M"


def real_model(stem: str) -> Path:
    """The path of a real model, or skip the test."""
    folders = [
        Path("~/.cache/millstream-test-models").expanduser(),
        platformdirs.user_cache_path("millstream") / "models",
    ]
    if home := os.environ.get("MILLSTREAM_HOME"):
        folders.insert(0, Path(home) / "models")
    for folder in folders:
        if (path := folder / f"{stem}.gguf").is_file():
            return path
    pytest.skip(f"the model {stem} is not on this machine")
