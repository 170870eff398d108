"""Settings of the whole suite, and fixtures of all areas: real models, if they are on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from millstream.models.catalogue import CATALOGUE, cached_model, find_model, model_folder

# No deadline: a busy machine is no reason to fail.
settings.register_profile("millstream", deadline=None, max_examples=100)
settings.load_profile("millstream")

DEFAULT_TEST_MODELS = Path.home() / ".cache" / "millstream-test-models"


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Path]:
    """Path of a catalogue model (``real_model("smollm2")``); the test is skipped if it was not fetched.

    `make test` fetches them into ``$MILLSTREAM_TEST_MODELS``.
    """
    folders = (Path(os.environ.get("MILLSTREAM_TEST_MODELS") or DEFAULT_TEST_MODELS), model_folder())

    def find(name: str) -> Path:
        model = find_model(name)
        assert model is not None, f"{name!r} is none of {[known.name for known in CATALOGUE]}"
        for folder in folders:
            if path := cached_model(model, folder):
                return path
        pytest.skip(f"{model.filename} is not in {folders[0]}: make test-models")

    return find
