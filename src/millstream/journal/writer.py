"""The thread that writes: answers never wait for the disk; what it cannot take in time is dropped and counted."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from millstream.journal.files import JournalFiles
from millstream.journal.records import ModelFacts, Record

log = logging.getLogger("millstream.journal")

MAX_WAITING_BYTES = 64 << 20
"""Of records that wait to be written."""


Maker = Callable[["Digests"], Record]
"""Makes a record in the writing thread, as that takes time: bodies are decoded, model files hashed."""


class Journal:
    """A journal that is open for writing. ``limit``: bytes of all its files. `put` may be called from any thread."""

    def __init__(self, folder: Path, *, limit: int) -> None:
        """Raises `OSError`: the folder cannot be made, or nothing can be written there."""
        self._files = JournalFiles(folder, limit=limit)
        self._digests = Digests()
        self._ready = threading.Condition()
        self._waiting: deque[tuple[int, Maker]] = deque()
        self._bytes = 0
        self._closing = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, make: Maker, *, weight: int) -> None:
        """Have a record made and written. ``weight``: about how many bytes it keeps in memory until then."""
        with self._ready:
            if self._closing or (self._waiting and self._bytes + weight > MAX_WAITING_BYTES):
                self._drop("the disk is too slow")
                return
            self._waiting.append((weight, make))
            self._bytes += weight
            self._ready.notify()

    def close(self, seconds: float = 30.0) -> None:
        """Write what waits, then end; at most so long."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join(seconds)
        if self.dropped:
            log.warning("%d records are missing in the journal", self.dropped)

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._waiting and not self._closing:
                    self._ready.wait()
                if not self._waiting:
                    break
                weight, make = self._waiting.popleft()
            self._write(make)
            with self._ready:
                self._bytes -= weight
        try:
            self._files.close()
        except OSError as error:
            log.warning("the journal's last file may be incomplete: %s", error)

    def _write(self, make: Maker) -> None:
        try:
            if not self._files.append(msgspec.json.encode(make(self._digests))):
                self._drop("a record is larger than the whole journal may be")
        except OSError as error:
            self._drop(str(error))
        except Exception:
            log.exception("a record could not be made")
            self._drop("a fault in the server")

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:  # each power of two: a full disk must not fill the log
            log.warning("not in the journal: %s (%d records so far)", reason, self.dropped)


class Digests:
    """Facts of model files. A file is read once, and again when it has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, int, int], str] = {}

    def facts(self, name: str, path: Path) -> ModelFacts:
        """Reads the file whole, the first time."""
        try:
            status = path.stat()
            key = (path, status.st_size, status.st_mtime_ns)
            if key not in self._known:
                with path.open("rb") as file:
                    self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            log.warning("cannot read %s for its digest: %s", path, error)
            return ModelFacts(name=name, file=str(path.absolute()), size=0, sha256="")
        return ModelFacts(name=name, file=str(path.absolute()), size=status.st_size, sha256=self._known[key])
