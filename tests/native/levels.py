"""Runs a function of the tests in a process of its own at another ISA level."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parent.parent
PROGRAM = """
import importlib, sys
from support.other_core import use_other_core
use_other_core()
import numpy as np
module, function, argument = sys.argv[1].split(":")
np.save(sys.argv[2], getattr(importlib.import_module(module), function)(argument))
"""


def in_level(level: str, call: str) -> np.ndarray:
    """The array that ``module:function:argument`` gives with ``MILLSTREAM_ISA=level``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.npy"
        env = {**os.environ, "MILLSTREAM_ISA": level, "PYTHONPATH": str(TESTS)}
        subprocess.run([sys.executable, "-c", PROGRAM, call, str(path)], check=True, env=env, timeout=120)
        return np.load(path)
