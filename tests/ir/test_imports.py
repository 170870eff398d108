"""The stream is a library of its own."""

from __future__ import annotations

import subprocess
import sys


def test_the_ir_loads_nothing_else_of_ours() -> None:
    program = (
        "import sys, millstream.ir.channel, millstream.ir.fold, millstream.ir.request\n"
        "print(*sorted({name.split('.')[1] for name in sys.modules if name.startswith('millstream.')}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ir"]


def test_the_pipeline_loads_no_native_code() -> None:
    program = (
        "import sys, millstream.pipeline.local, millstream.engine.scripted\n"
        "print('millstream.native' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
