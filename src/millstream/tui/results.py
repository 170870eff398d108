"""The last benchmarks, kept in the user's state folder, so that the next one has something to compare with."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec
import platformdirs

from millstream.ir.files import read_regular
from millstream.tui.benchmark import Plan, Result

_KEPT = 50
_MOST_BYTES = 1 << 20


class _Entry(msgspec.Struct):
    url: str
    result: Result


class Results:
    """``path``: a JSON file; one that is missing, broken or not readable counts as empty."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or platformdirs.user_state_path("millstream") / "top-bench.json"

    def last(self, url: str, plan: Plan) -> Result | None:
        """The newest run of the same plan against the same server: others would not compare."""
        matching = [entry.result for entry in self._read() if entry.url == url and entry.result.plan == plan]
        return matching[-1] if matching else None

    def add(self, url: str, result: Result) -> None:
        """Keep a run. Raises `OSError` where nothing can be written."""
        entries = [*self._read(), _Entry(url, result)][-_KEPT:]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Another `top` may write at the same time: whole files replace each other.
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".top-bench-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(entries))
            os.replace(name, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _read(self) -> list[_Entry]:
        try:
            return msgspec.json.decode(read_regular(self._path, _MOST_BYTES)[0], type=list[_Entry])
        except (OSError, msgspec.DecodeError, RecursionError):
            return []
