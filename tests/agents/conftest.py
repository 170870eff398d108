"""What the tests of coding agents share: the programs from npm, a home for each run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / "build" / "agents"


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The folder of the programs, which `make agents` installs."""
    folder = INSTALLED / "node_modules" / ".bin"
    if not folder.is_dir():
        pytest.fail("the coding agents are not installed: make agents")
    return folder


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for one run. Not in the system's temporary folder: Codex keeps its helpers in no such place."""
    (INSTALLED / "runs").mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=INSTALLED / "runs"))
    yield folder
    if "MILLSTREAM_KEEP_RUNS" not in os.environ:
        shutil.rmtree(folder, ignore_errors=True)
