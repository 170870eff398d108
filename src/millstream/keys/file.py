"""The file of keys: JSON with mode 0600, written whole and put in place at once, by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import platformdirs

from millstream.ir.files import read_regular
from millstream.keys.key import SINGLE_NAME, Key

T = TypeVar("T")

MOST_KEYS = 1000
"""Every request is compared with each of them."""

_MOST_BYTES = 4 * 1024 * 1024
_WRITABLE_BY_OTHERS = 0o022


class KeyFileError(Exception):
    """The file of keys cannot be read or written; the message says which, why and what to do."""


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: tuple[Key, ...]
    version: Literal[1] = 1


def default_keys_path() -> Path:
    """Where keys are kept: ``$MILLSTREAM_HOME/keys.json``, else the user's state folder."""
    if home := os.environ.get("MILLSTREAM_HOME"):
        return Path(home).expanduser() / "keys.json"
    return platformdirs.user_state_path("millstream") / "keys.json"


Signature = tuple[int, ...]
"""Changes when the file does, or who may write it."""


class KeyFile:
    """A file of keys; it need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def signature(self) -> Signature | None:
        """What tells one content from the next, without reading it; None: there is no file.

        Raises:
            KeyFileError: the file cannot be looked at.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KeyFileError(f"Cannot read the keys in {self.path}: {error.strerror}.") from None
        # The mode too: a file that is made and opened to others in one tick of its clock has the same times.
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_mode

    def read(self) -> tuple[Key, ...]:
        """The keys in order of their creation; none if there is no file.

        Raises:
            KeyFileError: it cannot be read, is no file of keys, or may be written by others.
        """
        try:
            raw, status = read_regular(self.path, _MOST_BYTES)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise KeyFileError(f"Cannot read the keys in {self.path}: {error.strerror}.") from None
        if status.st_mode & _WRITABLE_BY_OTHERS:
            # Whoever may write it may give himself an admin key.
            raise KeyFileError(f"Others may write the keys in {self.path}. Take that from them: chmod 600 {self.path}")
        return _parse(raw, self.path)

    def change(self, change: Callable[[tuple[Key, ...]], tuple[tuple[Key, ...], T]]) -> T:
        """Replace the keys by what ``change`` makes of them, and give what else it returns.

        No other process changes them meanwhile; readers see the old file or the new one. What ``change`` raises leaves
        the file as it was.

        Raises:
            KeyFileError: it cannot be read or written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._locked():
                keys, result = change(self.read())
                _check(keys, self.path)
                self._write(msgspec.json.format(msgspec.json.encode(_Content(keys=keys)), indent=1) + b"\n")
        except OSError as error:
            raise KeyFileError(f"Cannot write the keys to {self.path}: {error.strerror}.") from None
        return result

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        # Beside the file, which is replaced: a lock on it would be one on what is no longer there.
        lock = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, raw: bytes) -> None:
        # `mkstemp` makes files with mode 0600.
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _parse(raw: bytes, path: Path) -> tuple[Key, ...]:
    try:
        keys = msgspec.json.decode(raw, type=_Content).keys
    except (msgspec.DecodeError, RecursionError) as error:
        raise KeyFileError(f"{path} is not a file of keys: {error}.") from None
    _check(keys, path)
    return keys


def _check(keys: tuple[Key, ...], path: Path) -> None:
    """What one key alone does not show."""
    if len(keys) > MOST_KEYS:
        raise KeyFileError(f"There can be {MOST_KEYS} keys at most in {path}; revoke some.")
    for values in ([key.name for key in keys], [key.id for key in keys], [key.digest for key in keys]):
        if len(set(values)) < len(values):
            raise KeyFileError(f"Two keys in {path} have the same name, id or digest.")
    if any(SINGLE_NAME in (key.name, key.id) for key in keys):
        raise KeyFileError(f"No key in {path} can be named {SINGLE_NAME!r}: that is the one of serve --api-key.")
