"""How many steps the processes of a scripted engine make: the test decides, not the speed of the machine."""

from __future__ import annotations

import time
from pathlib import Path


class StepGate:
    """Each process makes ``steps`` steps and stands still in the next one, until more are allowed or it is opened.

    ``state`` is the engine's ``EngineConfig.model_path``. Make the gate before the engine is started. Between two steps
    an engine takes what has come until then, so what all steps are to know of is sent before the first is allowed.
    """

    def __init__(self, state: Path, steps: int) -> None:
        self._path = _path(state)
        self._path.touch()
        self.allow(steps)

    def allow(self, steps: int) -> None:
        """Each process may make so many in all. Their number is the file's size, which changes at once."""
        with self._path.open("r+b") as file:
            file.truncate(steps)

    def open(self) -> None:
        """Steps are free from now on."""
        self._path.unlink(missing_ok=True)


def wait_for_gate(state: Path, step: int) -> None:
    """In the engine process: wait until it may make its step number ``step``; at once if there is no gate."""
    path = _path(state)
    try:
        while path.stat().st_size < step:
            time.sleep(0.005)
    except FileNotFoundError:
        pass


def _path(state: Path) -> Path:
    return state.with_name(f"{state.name}.steps")
