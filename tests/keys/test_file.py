"""The file of keys, and the ring that follows it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.keys.file import KeyFile, KeyFileError, default_keys_path
from millstream.keys.key import Key, digest_of, new_token
from millstream.keys.ring import Keyring
from support.keyed import Keys


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "state")


def test_only_hashes_are_kept_and_only_the_owner_reads_them(keys: Keys) -> None:
    token = keys.add("a")
    text = keys.path.read_text()
    assert token not in text
    assert token.removeprefix("sk-millstream-") not in text
    assert digest_of(token.encode()) in text
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.path.parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in keys.path.parent.iterdir()) == ["keys.json", "keys.json.lock"]


def test_tokens_are_256_random_bits() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {len("sk-millstream-") + 43}


def test_several_processes_lose_nothing(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from support.keyed import Keys\n"
        "keys = Keys(Path(sys.argv[1]))\n"
        "for n in range(8): keys.add(f'{sys.argv[2]}-{n}')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", script, str(tmp_path)]
    writers = [subprocess.Popen([*command, name], env=environment) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(KeyFile(tmp_path / "keys.json").read()) == 16


def test_a_change_that_fails_leaves_the_file(keys: Keys) -> None:
    keys.add("a")
    before = keys.path.read_bytes()

    def fail(known: tuple[Key, ...]) -> tuple[tuple[Key, ...], None]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        KeyFile(keys.path).change(fail)
    with pytest.raises(KeyFileError, match="same name"):
        keys.add("a")
    assert keys.path.read_bytes() == before
    assert len(list(keys.path.parent.iterdir())) == 2


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", '{"version":2,"keys":[]}', '{"version":1,"keys":[{}]}', '{"version":1,"keys":7}',
        '{"version":1,"keys":[],"more":1}', "[" * 100_000,
        '{"version":1,"keys":[{"id":"k","name":"a","digest":"short"}]}',
        '{"version":1,"keys":[{"id":"k","name":"a\\nb","digest":"%s"}]}' % ("0" * 64),
        '{"version":1,"keys":[{"id":"api-key","name":"a","digest":"%s"}]}' % ("0" * 64),
        '{"version":1,"keys":[{"id":"k","name":"a","digest":"%s","concurrent":0}]}' % ("0" * 64),
        '{"version":1,"keys":[{"id":"k","name":"a","digest":"%s","best_priority":5}]}' % ("0" * 64),
        '{"version":1,"keys":[{"id":"k","name":"a","digest":"%s","limit":5}]}' % ("0" * 64),
    ],
)  # fmt: skip
def test_what_is_no_file_of_keys_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match=r"keys\.json"):
        KeyFile(path).read()


@given(st.binary(max_size=200))
def test_no_bytes_break_it(raw: bytes) -> None:
    path = Path("/dev/shm" if Path("/dev/shm").exists() else "/tmp") / f"millstream-keys-{os.getpid()}.json"
    path.write_bytes(raw)
    path.chmod(0o600)
    try:
        with pytest.raises(KeyFileError):
            KeyFile(path).read()
    finally:
        path.unlink()


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path, words in (
        (tmp_path / "pipe", "a pipe or a device"),
        (tmp_path, "directory"),
        (Path("/dev/zero"), "device"),
    ):
        with pytest.raises(KeyFileError, match=words):
            KeyFile(path).read()
    with pytest.raises(KeyFileError, match="a pipe or a device"):
        KeyFile(tmp_path / "pipe").change(lambda keys: (keys, None))


def test_a_file_that_others_may_write_is_not_trusted(keys: Keys) -> None:
    keys.add("a")
    keys.path.chmod(0o620)
    with pytest.raises(KeyFileError, match="chmod 600"):
        KeyFile(keys.path).read()


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def circle(path: Path) -> None:
    path.symlink_to(path)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)
    path.chmod(0o600)


@pytest.mark.parametrize("make", [pipe, zeros, circle, huge, Path.mkdir])
def test_what_stands_in_the_place_of_the_file_neither_stops_nor_fills_the_server(
    keys: Keys, make: Callable[[Path], None]
) -> None:
    """A pipe would be waited for, by all requests."""
    token = keys.add("a")
    ring = Keyring(KeyFile(keys.path))
    keys.path.unlink()
    make(keys.path)
    with pytest.raises(KeyFileError, match=r"keys\.json"):
        KeyFile(keys.path).read()
    assert ring.guarded
    assert ring.find(token.encode()) is not None


def test_the_ring_sees_that_others_may_write_the_file(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    """Its mode is no part of its content."""
    token = keys.add("a")
    ring = Keyring(KeyFile(keys.path))
    keys.path.chmod(0o666)
    assert ring.find(token.encode()) is not None
    assert "chmod 600" in caplog.text


def test_the_name_of_a_key_that_is_gone_stays_known(keys: Keys) -> None:
    """Its id is nobody's business, also where its last answers are counted."""
    keys.add("a")
    ring, gone = Keyring(KeyFile(keys.path)), keys.id_of("a")
    keys.revoke("a")
    assert ring.find(b"x") is None
    assert ring.name_of(gone) == "a"
    assert ring.name_of("never") == "never"


def test_the_ring_follows_the_file(keys: Keys) -> None:
    ring = Keyring(KeyFile(keys.path))
    assert not ring.guarded
    token = keys.add("a")
    assert ring.guarded
    found = ring.find(token.encode())
    assert found is not None
    assert (found.name, ring.name_of(found.id)) == ("a", "a")
    assert ring.find(b"") is None
    assert ring.find(token.encode() + b"x") is None
    keys.revoke("a")
    assert ring.find(token.encode()) is None
    assert ring.guarded


def test_a_file_that_goes_away_opens_nothing(keys: Keys) -> None:
    token = keys.add("a")
    ring = Keyring(KeyFile(keys.path))
    keys.path.unlink()
    assert ring.guarded
    assert ring.find(token.encode()) is None


def test_a_file_that_breaks_leaves_the_keys_and_is_told_once(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    token = keys.add("a")
    ring = Keyring(KeyFile(keys.path))
    good = keys.path.read_bytes()
    keys.path.write_text("{")
    for _ in range(3):
        assert ring.find(token.encode()) is not None
    assert len(caplog.records) == 1
    keys.path.write_bytes(good)
    assert ring.find(token.encode()) is not None
    keys.revoke("a")
    assert ring.find(token.encode()) is None


def test_a_file_without_keys_still_asks_for_one(keys: Keys) -> None:
    """To revoke the last key, and start again, must not open the server."""
    keys.add("a")
    keys.revoke("a")
    assert Keyring(KeyFile(keys.path)).guarded


def test_the_single_key_stands_beside_the_others(keys: Keys) -> None:
    token = keys.add("a")
    ring = Keyring(KeyFile(keys.path), single=digest_of(b"secret"))
    assert [ring.find(each).name for each in (b"secret", token.encode())] == ["api-key", "a"]  # type: ignore[union-attr]
    assert ring.find(b"secret").admin  # type: ignore[union-attr]


def test_every_key_is_compared_whatever_the_token(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a token is compared with, and how often, must not hang on it."""
    compared: list[str] = []

    def compare(one: str, other: str) -> bool:
        compared.append(one)
        return one == other

    tokens = [keys.add(name) for name in "abc"]
    ring = Keyring(KeyFile(keys.path))
    monkeypatch.setattr("millstream.keys.ring.hmac.compare_digest", compare)
    seen = []
    for token in (*tokens, "wrong"):
        compared.clear()
        ring.find(token.encode())
        seen.append(list(compared))
    assert seen == [[digest_of(token.encode()) for token in tokens]] * 4


def test_where_keys_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    assert default_keys_path() == tmp_path / "keys.json"
    monkeypatch.delenv("MILLSTREAM_HOME")
    assert default_keys_path().name == "keys.json"


def test_the_file_is_json_that_people_can_read(keys: Keys) -> None:
    keys.add("a", models=("x",), requests_per_minute=5)
    (entry,) = json.loads(keys.path.read_text())["keys"]
    assert (entry["name"], entry["models"], entry["requests_per_minute"]) == ("a", ["x"], 5)
