"""Folders, disk space, the configuration, and files that hold secrets."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from typer.core import TyperGroup

from millstream.cli.configuration.files import ConfigError, chosen_path
from millstream.cli.configuration.group import check_variables, load_settings, unknown_variables
from millstream.cli.doctor.findings import Finding, ok, problem, warning
from millstream.ir.files import read_regular
from millstream.ir.sizes import size

_SPACE = 10**9
_LEAST = 16 << 20
"""What the answers of a day and a journal's file take at least."""

_MOST_BYTES = 4 << 20


def check_places(root: TyperGroup, config: str | None) -> Iterator[Finding]:
    """``config``: what ``--config`` says."""
    from millstream.models.catalogue import model_folder
    from millstream.server.sqlite_store import default_store_path

    yield from check_folder("model folder", model_folder())
    data = default_store_path().parent
    yield from check_folder("data folder", data)
    yield from _configuration(root, config)


def check_folder(name: str, folder: Path) -> Iterator[Finding]:
    """Whether it is there or can be made, can be written, and has room."""
    there = _nearest(folder)
    missing = "" if there == folder else ", not there yet"
    if not there.is_dir():
        yield problem(
            name, f"{folder}: {there} is no folder", "move that file, or set MILLSTREAM_HOME to another folder"
        )
        return
    if not os.access(there, os.W_OK | os.X_OK):
        mend = f"chown or chmod {there}, or set MILLSTREAM_HOME to a folder that you may write"
        yield problem(name, f"{there} cannot be written", mend)
        return
    free = free_bytes(folder)
    text = f"{folder}{missing}, {size(free)} free"
    if free < _LEAST:
        mend = f"free some space on the disk of {there}, or set MILLSTREAM_HOME to a folder on another one"
        yield problem(name, f"the disk is full: {text}", mend)
    elif free < _SPACE:
        mend = f"free some space on that disk, or set MILLSTREAM_HOME: models take {size(_SPACE)} and more"
        yield warning(name, text, mend)
    else:
        yield ok(name, text)


def free_bytes(folder: Path) -> int:
    """Of the disk where a folder is, or would be."""
    return shutil.disk_usage(_nearest(folder)).free


def _nearest(folder: Path) -> Path:
    """The folder, or what is there of those above it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _configuration(root: TyperGroup, given: str | None) -> Iterator[Finding]:
    name, mend = "configuration", "mend that line; `millstream config init --stdout` shows every option"
    path, _ = chosen_path(given)
    sound = True
    for check in (partial(load_settings, root, given), partial(check_variables, root)):
        try:
            check()
        except ConfigError as error:
            sound = False
            yield from (problem(name, text, mend) for text in error.problems)
    yield from (warning(name, text, "unset it, or write it right") for text in unknown_variables(root))
    if not sound or path is None or not path.exists():
        if sound:
            yield ok(name, "no file, so the environment and the defaults hold")
        return
    yield ok(name, f"{path} is sound")
    yield from check_secret("configuration", path)


def check_secret(name: str, path: Path) -> Iterator[Finding]:
    """A file that may hold keys, if it is there: nobody else should read it, nor write it."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield problem(name, f"{path} can be changed by others (mode {mode:04o})", f"chmod 600 {path}")
    elif mode & (stat.S_IRGRP | stat.S_IROTH) and _names_keys(path):
        yield warning(name, f"{path} may hold keys and can be read by others (mode {mode:04o})", f"chmod 600 {path}")


def _names_keys(path: Path) -> bool:
    try:
        return b"key" in read_regular(path, _MOST_BYTES)[0]
    except OSError:
        return False
