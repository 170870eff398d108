"""Small files that a person names: bounded in size, and in time where they are pipes."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from millstream.ir.files import read_regular, read_small


def test_a_file_is_read_whole_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    assert read_small(path, 100_000) == path.read_bytes()
    content, status = read_regular(path, 100_000)
    assert (len(content), status.st_size) == (100_000, 100_000)
    for read in (read_small, read_regular):
        with pytest.raises(OSError, match="larger than 99,999 bytes") as caught:
            read(path, 99_999)
        assert caught.value.errno == errno.EFBIG


@pytest.mark.parametrize("read", [read_small, read_regular])
def test_what_is_no_file_or_not_there(read: object, tmp_path: Path) -> None:
    assert callable(read)
    with pytest.raises(IsADirectoryError):
        read(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing", 10)
    with pytest.raises(OSError, match=r"larger than|no file"):
        read(Path("/dev/zero"), 1000)


def test_a_pipe_that_nobody_writes_to_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        read_small(tmp_path / "pipe", 10, pipe_seconds=0.01)
    with pytest.raises(OSError, match="a pipe or a device"):
        read_regular(tmp_path / "pipe", 10)


def test_a_pipe_with_a_writer_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"port = 1\n",))
    writer.start()
    assert read_small(path, 100) == b"port = 1\n"
    writer.join()
