"""The native core of another build in the place of the installed one: with sanitizers, or by another compiler."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

NAME = "millstream.native._core"


def use_other_core() -> None:
    """Load the core from the folder that ``MILLSTREAM_CORE`` names, if it is set. Before anything imports it."""
    folder = os.environ.get("MILLSTREAM_CORE")
    if not folder:
        return
    (path,) = Path(folder).resolve().glob("_core*.so")
    os.environ["MILLSTREAM_CORE"] = str(path.parent)  # for processes that are started elsewhere
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(path))
    spec = importlib.util.spec_from_file_location(NAME, str(path), loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[NAME] = module
