"""Records on disk: append-only files of one JSON object a line, rotated by size, the oldest removed beyond a limit.

A process always begins a file of its own, so that a line which a crash has torn stays the last of its file.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import msgspec

from millstream.journal.records import Record

PATTERN = "journal-*.jsonl"
_PARTS = 8
"""The limit is kept by removing files, so there should be several."""

_decoder = msgspec.json.Decoder(Record)


class JournalFiles:
    """The files of one folder, for one writer; other processes may write others there.

    Everything here blocks, and raises `OSError` for what the file system refuses.
    """

    def __init__(self, folder: Path, *, limit: int) -> None:
        """``limit``: bytes of all files together. The folder is made if it is not there, for its owner alone."""
        self._folder = folder
        self._make_folder()
        self._limit = limit
        self._part = max(1, limit // _PARTS)
        self._file: FileIO | None = None
        self._name = ""
        self._size = 0
        self._total = 0
        self._count = 0

    def append(self, line: bytes) -> bool:
        """Write one line (without its end) to the operating system; False: it is larger than the limit allows."""
        need = len(line) + 1
        if need > self._limit:
            return False
        if self._file is None or _removed(self._file) or (self._size and self._size + need > self._part):
            self._file = self._begin()
        if self._total + need > self._limit:
            self._make_room(need)
        self._write(self._file, line + b"\n")
        self._size += need
        self._total += need
        return True

    def close(self) -> None:
        """To the disk itself."""
        if self._file is not None:
            file, self._file = self._file, None
            with file:
                os.fsync(file.fileno())

    def _write(self, file: FileIO, data: bytes) -> None:
        """All of it or nothing: what a full disk has torn would spoil the next line too."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(self._size)
            raise

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _begin(self) -> FileIO:
        self.close()
        self._make_folder()
        self._count += 1
        self._name = f"journal-{time.time_ns():020}-{os.getpid()}-{self._count:06}.jsonl"
        self._size = 0
        self._total = sum(size for _, size in _sizes(self._folder))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        return FileIO(os.open(self._folder / self._name, flags, 0o600), "wb")

    def _make_room(self, need: int) -> None:
        sizes = _sizes(self._folder)
        self._total = sum(size for _, size in sizes)
        for path, size in sizes:
            if self._total + need <= self._limit:
                return
            if path.name != self._name:
                path.unlink(missing_ok=True)
                self._total -= size


def _removed(file: FileIO) -> bool:
    """Whether nobody will find what is written."""
    return os.fstat(file.fileno()).st_nlink == 0


def _sizes(folder: Path) -> list[tuple[Path, int]]:
    """The files, oldest first, with their sizes; what only has such a name and is no file is left alone."""
    found = []
    for path in sorted(folder.glob(PATTERN)):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # removed by another process meanwhile
        if stat.S_ISREG(status.st_mode):
            found.append((path, status.st_size))
    return found


def read_records(folder: Path, on_damage: Callable[[str], None]) -> Iterator[Record]:
    """The records of a folder, oldest first. What is no file, and a line that is no record, is skipped and told to
    ``on_damage``.

    Raises:
        OSError: the folder or a file cannot be read.
    """
    for path in sorted(folder.glob(PATTERN)):
        if path.exists() and not path.is_file():  # to open a pipe would wait for its writer
            on_damage(f"{path}: skipped, not a file")
            continue
        try:
            file = path.open("rb")
        except FileNotFoundError:
            continue
        with file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    on_damage(f"{path}:{number}: skipped, the record was not written to its end")
                    continue
                try:
                    record = _decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    on_damage(f"{path}:{number}: skipped, not a record ({error})")
                    continue
                yield record
