"""Small files that a person names, which may turn out to be anything: a pipe nobody writes to, a device without end."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path

PIPE_SECONDS = 10.0
_PIECE = 1 << 16


def read_small(path: Path, limit: int, *, pipe_seconds: float = PIPE_SECONDS) -> bytes:
    """The bytes of a file, at most ``limit``. A pipe (``<(command)`` of a shell) has ``pipe_seconds`` to say all it has
    to say.

    Raises:
        OSError: as `open` does, `TimeoutError` for a silent pipe, EFBIG for a file that is larger; ``strerror`` says it
            in words.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # blocking, `open` waits for a pipe's writer
    try:
        return _read(handle, limit, pipe_seconds)
    finally:
        os.close(handle)


def read_regular(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    """The bytes of a regular file, at most ``limit``, and what it is. For files that are replaced, which a pipe or a
    device cannot be.

    Raises:
        OSError: as `open` does, EINVAL for what is no regular file, EFBIG for a file that is larger; ``strerror`` says
            it in words.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "It is a pipe or a device and no file")
        return _read(handle, limit, 0.0), status
    finally:
        os.close(handle)


def _read(handle: int, limit: int, seconds: float) -> bytes:
    ready = select.poll()
    ready.register(handle, select.POLLIN)
    end = time.monotonic() + seconds
    found = bytearray()
    while True:
        # A regular file is always ready.
        if not ready.poll(1000 * max(0.0, end - time.monotonic())):
            raise TimeoutError(errno.ETIMEDOUT, f"It is a pipe, and its end did not come within {seconds:g} s")
        piece = os.read(handle, min(_PIECE, limit + 1 - len(found)))
        if not piece:
            return bytes(found)
        found += piece
        if len(found) > limit:
            size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit:,} bytes"
            raise OSError(errno.EFBIG, f"It is larger than {size}")
