"""Files of a journal: torn lines, rotation, limits, permissions."""

from __future__ import annotations

import logging
import os
import resource
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.journal.files import PATTERN, JournalFiles, read_records
from millstream.journal.records import Record
from millstream.journal.writer import Journal


def record(name: str, body: str = "") -> Record:
    return Record(
        id=name, time=1.0, seconds=0.5, surface="chat", path="/v1/chat/completions", status=200, whole=True, body=body,
        body_bytes=len(body),
    )  # fmt: skip


def line(name: str, size: int = 0) -> bytes:
    return msgspec.json.encode(record(name, "x" * size))


def names(folder: Path, damage: list[str] | None = None) -> list[str]:
    seen: list[str] = [] if damage is None else damage
    return [each.id for each in read_records(folder, seen.append)]


def test_records_are_read_in_their_order(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "new" / "journal", limit=1 << 20)
    for name in "abc":
        assert files.append(line(name))
    assert names(tmp_path / "new" / "journal") == ["a", "b", "c"]  # also while it is open
    files.close()


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path / "journal", limit=1 << 20)
    files.append(line("a"))
    files.close()
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o700
    (path,) = (tmp_path / "journal").glob(PATTERN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@given(cut=st.integers(1, 100))
@settings(max_examples=30)
def test_a_torn_last_record_is_skipped_and_told(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("torn")
    files = JournalFiles(folder, limit=1 << 20)
    files.append(line("a"))
    files.append(line("b"))
    files.close()
    (path,) = folder.glob(PATTERN)
    path.write_bytes(path.read_bytes()[:-cut])
    again = JournalFiles(folder, limit=1 << 20)  # the next server writes a file of its own
    again.append(line("c"))
    again.close()
    damage: list[str] = []
    assert names(folder, damage) == ["a", "c"]
    assert damage == [f"{path}:2: skipped, the record was not written to its end"]


def test_a_line_that_is_no_record_is_skipped_and_told(tmp_path: Path) -> None:
    (tmp_path / "journal-1.jsonl").write_bytes(b"{}\n\xff\n" + line("a") + b"\n")
    damage: list[str] = []
    assert names(tmp_path, damage) == ["a"]
    assert [text.partition(": skipped")[0][-2:] for text in damage] == [":1", ":2"]


def test_what_a_full_disk_tore_spoils_nothing_else(tmp_path: Path) -> None:
    """The limit of a file's size stands for the disk's: a write gets as far as there is room, and then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    files = JournalFiles(tmp_path, limit=1 << 20)
    files.append(line("a"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        for _ in range(3):
            with pytest.raises(OSError, match="too large"):
                files.append(line("lost", 20_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    files.append(line("b"))
    files.close()
    damage: list[str] = []
    assert (names(tmp_path, damage), damage) == (["a", "b"], [])
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("folder_too", [True, False])
def test_a_journal_that_is_removed_is_begun_anew(folder_too: bool, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    files = JournalFiles(folder, limit=1 << 20)
    files.append(line("a"))
    for path in folder.iterdir():
        path.unlink()
    if folder_too:
        folder.rmdir()
    files.append(line("b"))
    files.close()
    assert names(folder) == ["b"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def edited(change: dict[str, Any], sequence: dict[str, Any] | None = None) -> bytes:
    """A record that somebody wrote by hand."""
    whole = msgspec.to_builtins(record("edited"))
    engine = {"version": "1", "isa": "x", "threads": 1, "context_length": 8, "kv_tokens": 8}
    whole |= {"model": {"name": "m", "file": "m", "size": 1, "sha256": ""}, "engine": engine}
    whole |= {"sequences": [{"request": {"id": "r", "prompt": [1]} | (sequence or {})}], **change}
    return msgspec.json.encode(whole) + b"\n"


def test_a_record_that_was_edited_is_read(tmp_path: Path) -> None:
    (tmp_path / "journal-1.jsonl").write_bytes(edited({}))
    assert names(tmp_path) == ["edited"]


@pytest.mark.parametrize(
    "raw",
    [
        edited({"time": 1e300}),
        edited({"time": -1e300}),
        edited({"engine": None}),
        edited({"model": None}),
        edited({}, {"prompt": 5}),
        edited({}, {"choice": "abc"}),
        edited({}, {"choice": None}),
        edited({}).replace(b'"prompt":[1]', b'"prompt":' + b"[" * 100_000 + b"]" * 100_000),
    ],
    ids=["late", "early", "no engine", "no model", "prompt", "choice", "null", "deep"],
)
def test_a_record_that_was_edited_badly_is_told(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "journal-1.jsonl").write_bytes(raw + line("a") + b"\n")
    damage: list[str] = []
    assert names(tmp_path, damage) == ["a"]
    assert [":1: skipped, not a record" in text for text in damage] == [True]


def test_what_is_no_file_is_neither_opened_nor_removed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "journal-0.jsonl")
    (tmp_path / "journal-1.jsonl").mkdir()
    (tmp_path / "journal-2.jsonl").symlink_to(tmp_path / "nothing")
    files = JournalFiles(tmp_path, limit=1000)
    written = [files.append(line(str(number), 300)) for number in range(9)]
    files.close()
    damage: list[str] = []
    found = names(tmp_path, damage)
    assert written == [True] * 9
    assert found == [str(number) for number in range(9)][-len(found) :]
    assert [text.rpartition("/")[2] for text in damage] == [
        "journal-0.jsonl: skipped, not a file", "journal-1.jsonl: skipped, not a file"
    ]  # fmt: skip


@given(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=40), limit=st.integers(400, 6000))
@settings(max_examples=30)
def test_the_newest_records_stay_within_the_limit(
    sizes: list[int], limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("limit")
    files = JournalFiles(folder, limit=limit)
    kept = []
    for number, size in enumerate(sizes):
        if files.append(line(str(number), size)):
            kept.append(str(number))
        else:
            assert len(line(str(number), size)) >= limit
        assert sum(path.stat().st_size for path in folder.glob(PATTERN)) <= limit
    files.close()
    found = names(folder)
    assert found == kept[len(kept) - len(found) :]
    assert bool(found) == bool(kept)


def test_old_files_of_other_processes_count(tmp_path: Path) -> None:
    old = tmp_path / "journal-0.jsonl"
    old.write_bytes(line("old", 3000) + b"\n")
    files = JournalFiles(tmp_path, limit=4000)
    files.append(line("new", 2000))
    files.close()
    assert names(tmp_path) == ["new"]


def test_the_thread_writes_all_before_it_ends(tmp_path: Path) -> None:
    journal = Journal(tmp_path, limit=1 << 20)
    for number in range(50):
        journal.put(lambda _, number=number: record(str(number)), weight=1)  # type: ignore[misc]
    journal.close()
    assert names(tmp_path) == [str(number) for number in range(50)]
    assert journal.dropped == 0


def test_what_cannot_be_written_is_dropped_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: object) -> Record:
        raise RuntimeError("a fault")

    journal = Journal(tmp_path, limit=600)
    with caplog.at_level(logging.WARNING):
        journal.put(lambda _: record("large", "x" * 1000), weight=1)
        journal.put(fails, weight=1)
        journal.put(lambda _: record("a"), weight=1)
        journal.close()
        journal.put(lambda _: record("late"), weight=1)
    assert names(tmp_path) == ["a"]
    assert journal.dropped == 3
    assert "larger than the whole journal" in caplog.text


def test_a_slow_disk_does_not_fill_the_memory(tmp_path: Path) -> None:
    import threading

    go = threading.Event()

    def slow(_: object) -> Record:
        go.wait(20)
        return record("slow")

    journal = Journal(tmp_path, limit=1 << 20)
    journal.put(slow, weight=1)
    for _ in range(10):
        journal.put(lambda _: record("a"), weight=30 << 20)
    go.set()
    journal.close()
    assert journal.dropped >= 7
    assert names(tmp_path).count("a") == 10 - journal.dropped
