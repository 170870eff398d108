"""The configuration file: where it is, what it says, and on which line."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs

from millstream.ir.files import read_small

VARIABLE = "MILLSTREAM_CONFIG"
MAX_BYTES = 1 << 20


class ConfigError(Exception):
    """The file cannot be used: each of ``problems`` is one line that begins with the place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def default_path() -> Path:
    """``config.toml`` in ``$MILLSTREAM_HOME``, else in the user's configuration folder for Millstream."""
    if home := os.environ.get("MILLSTREAM_HOME"):
        return Path(home).expanduser() / "config.toml"
    return platformdirs.user_config_path("millstream") / "config.toml"


def chosen_path(given: str | None) -> tuple[Path | None, bool]:
    """The file to read and whether somebody named it: ``--config``, else `VARIABLE` (empty: no file at all), else the
    default place, where it need not exist."""
    if given is None:
        given = os.environ.get(VARIABLE)
    if given is None:
        return default_path(), False
    return (Path(given).expanduser(), True) if given else (None, True)


class ConfigFile:
    """A file that is TOML. ``data`` holds its tables."""

    def __init__(self, path: Path, text: str, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data
        self._text = text
        self._lines: dict[tuple[str, ...], int] | None = None

    def place(self, *keys: str) -> str:
        """``FILE:LINE`` of a key, for a message."""
        if self._lines is None:
            self._lines = _key_lines(self._text)
        line = self._lines.get(keys)
        return f"{self.path}:{line}" if line is not None else str(self.path)


def read_file(path: Path, *, must_exist: bool) -> ConfigFile | None:
    """The file; None if there is none and there need not be.

    Raises:
        ConfigError: it cannot be read or is not TOML.
    """
    try:
        text = read_small(path, MAX_BYTES).decode()
    except (FileNotFoundError, NotADirectoryError):
        if not must_exist:
            return None
        raise ConfigError([f"{path}: no such file; `millstream config init` writes one"]) from None
    except OSError as error:
        hint = "; is this a configuration file?" if error.errno == errno.EFBIG else ""
        raise ConfigError([f"{path}: cannot be read: {error.strerror}{hint}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 (byte {error.start})"]) from None
    import tomllib  # most have no file

    try:
        return ConfigFile(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from None
    except RecursionError:
        raise ConfigError([f"{path}: nested too deeply"]) from None


def _key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of every key, counted from 1.

    tomllib tells no lines, but a key begins behind the longest beginning of the file that is TOML without it. This
    reads the file once per line, which only a file with a fault is worth.
    """
    import tomllib

    lines: dict[tuple[str, ...], int] = {}
    begin = 0
    whole = text.splitlines()
    for end in range(1, len(whole) + 1):
        try:
            data = tomllib.loads("\n".join(whole[:end]) + "\n")
        except tomllib.TOMLDecodeError:
            continue  # inside of a value of several lines
        for keys in _paths(data):
            lines.setdefault(keys, _first_of(whole, begin, end))
        begin = end
    return lines


def _first_of(lines: list[str], begin: int, end: int) -> int:
    """The number of the first of these lines that is neither empty nor a comment."""
    for index in range(begin, end):
        if lines[index].strip() and not lines[index].lstrip().startswith("#"):
            return index + 1
    return end


def _paths(table: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in table.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))
