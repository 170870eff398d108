"""Runs functions of the tests at another ISA level, in a process of its own: the level is chosen once."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from millstream.native import active_isa, isa_levels

TESTS = Path(__file__).parent.parent
PROGRAM = """
import importlib, sys
from support.other_core import use_other_core
use_other_core()
import numpy as np
for line in sys.stdin:
    path, module, function, argument = line.rstrip("\\n").split("\\t")
    np.save(path, getattr(importlib.import_module(module), function)(argument))
    print("done", flush=True)
"""


def in_level(level: str, call: str) -> np.ndarray:
    """The array that ``module:function:argument`` gives with ``MILLSTREAM_ISA=level``."""
    process = _process(level)
    assert process.stdin is not None
    assert process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.npy"
        process.stdin.write("\t".join([str(path), *call.split(":")]) + "\n")
        process.stdin.flush()
        if process.stdout.readline() != "done\n":
            _process.cache_clear()
            raise AssertionError(f"{call} ends the process at the level {level}: its words are on stderr")
        return np.load(path)


def assert_bits_of_generic(call: str, here: np.ndarray) -> None:
    """``here``, which ``module:function:argument`` gave in this process, is bit for bit what the generic level gives.

    Attention at the level ``amx`` has bits of its own (``emulated_attention.cpp`` is about them): there it is the level
    below that must agree.
    """
    found = in_level(isa_levels()[-2], call) if active_isa() == "amx" else here
    np.testing.assert_array_equal(in_level("generic", call), found)


@cache
def _process(level: str) -> subprocess.Popen[str]:
    """For all calls at a level, as it starts longer than most of them run."""
    env = {**os.environ, "MILLSTREAM_ISA": level, "PYTHONPATH": str(TESTS)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
    )
    atexit.register(process.communicate)
    return process
