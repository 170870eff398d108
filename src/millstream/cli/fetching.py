"""Fetching with something to look at: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from millstream.cli.errors import CliError
from millstream.cli.terminal import is_terminal, note
from millstream.ir.sizes import size
from millstream.models.catalogue import CatalogueModel, ModelUnavailable, OnProgress, Progress, resolve_model

_LINE_SECONDS = 5.0
_JSON_SECONDS = 0.5


Bring = Callable[[CatalogueModel], Path]
"""Says where a model's file will be, or puts it there."""


def find_or_fetch(ref: str | None, *, fetch: bool = True) -> Path:
    """The file a user means by ``ref`` (None: the default model): as `resolve_model`, or a name that `list` shows.
    Raises `CliError`."""
    return find_file(ref, fetch_shown if fetch else None)


def find_file(ref: str | None, bring: Bring | None) -> Path:
    """As `find_or_fetch`, with another way to come by a model that is not here (None: there is none)."""
    try:
        return resolve_model(ref, bring)
    except ModelUnavailable as error:
        from millstream.models.shelf import shelf

        model = shelf().get(ref or "")
        if model is None or model.path is None:
            raise CliError(str(error)) from None
        return model.path


def names_model(ref: str) -> bool:
    """Whether ``ref`` is a model to `find_or_fetch`, here or not."""
    try:
        find_file(ref, lambda model: Path(model.filename))
    except CliError:
        return False
    return True


def fetch_shown(model: CatalogueModel, folder: Path | None = None, *, as_json: bool = False) -> Path:
    """`fetch_model` with its progress on stderr, or as lines of JSON on stdout. Raises `ModelUnavailable`."""
    from millstream.models.fetch import fetch_model

    display = _json_lines if as_json else _bar if is_terminal(sys.stderr) else _lines
    with _sigterm_unwinds(), display(model) as on_progress:
        return fetch_model(model, folder, on_progress=on_progress)


@contextmanager
def _bar(model: CatalogueModel) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"fetching {model.name} ({size(model.size)})", total=model.download_bytes)

        def show(state: Progress) -> None:
            if state.stage == "waiting":
                progress.update(task, description=f"another process is fetching {model.name}")
            else:
                verb = "fetching" if state.stage == "downloading" else "verifying"
                progress.update(task, description=f"{verb} {model.name}", completed=state.done)

        yield show


@contextmanager
def _lines(model: CatalogueModel) -> Iterator[OnProgress]:
    last = time.monotonic()
    waiting = False
    note(f"fetching {model.name} ({size(model.size)}, once): {size(model.download_bytes)} to fetch")

    def show(state: Progress) -> None:
        nonlocal last, waiting
        if state.stage == "waiting":
            if not waiting:
                waiting = True
                note(f"another process is fetching {model.name}; waiting for it")
        elif time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            note(f"fetching {model.name}: {size(state.done)} of {size(state.total)}")

    yield show


@contextmanager
def _json_lines(model: CatalogueModel) -> Iterator[OnProgress]:
    """A line for each stage, and twice a second."""
    last, stage = 0.0, ""

    def show(state: Progress) -> None:
        nonlocal last, stage
        if state.stage != stage or time.monotonic() - last >= _JSON_SECONDS:
            last, stage = time.monotonic(), state.stage
            line = {"model": model.name, "state": stage, "done": state.done, "total": state.total}
            print(msgspec.json.encode(line).decode(), flush=True)

    yield show


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """While fetching, SIGTERM raises, so that pip is stopped and temporary files are removed."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
