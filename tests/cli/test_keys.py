"""`millstream keys`, as its user runs it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from command import Result, millstream, one_error_line

from millstream.cli.key_options import NEVER, NO_LIMIT, parse_api_key, parse_expiry, parse_limit, parse_models
from millstream.keys.file import KeyFile
from millstream.keys.key import Key, digest_of
from millstream.keys.ring import Keyring


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    monkeypatch.delenv("MILLSTREAM_KEYS_FILE", raising=False)
    return tmp_path


def keys(*args: str) -> Result:
    return millstream("keys", *args)


def done(*args: str) -> str:
    result = keys(*args)
    assert result.code == 0, result
    return result.out.strip()


def told(*args: str) -> Any:
    return json.loads(done(*args, "--json"))


def found(home: Path, token: str) -> Key | None:
    return Keyring(KeyFile(home / "keys.json")).find(token.encode())


def test_create_prints_the_key_alone_and_keeps_its_hash(home: Path) -> None:
    result = keys("create", "alice")
    token = result.out.strip()
    assert token.startswith("sk-millstream-")
    assert "not shown again" in result.err
    key = found(home, token)
    assert key is not None
    assert (key.name, key.admin, key.priority, key.best_priority) == ("alice", False, 0, 0)
    assert (key.requests_per_minute, key.tokens_per_minute, key.concurrent, key.models) == (None, None, None, ())
    assert key.expires is None
    assert token not in (home / "keys.json").read_text()
    assert token not in done("list") + done("list", "--json")


def test_everything_that_a_key_can_be_given(home: Path) -> None:
    options = ["--admin", "--priority", "5", "--best-priority", "-2", "--rpm", "60", "--tpm", "9000"]
    made = told("create", "bob", *options, "--concurrent", "4", "--models", "a, b", "--expires", "30d")
    key = found(home, made.pop("key"))
    assert key is not None
    assert (made["name"], made["admin"], made["priority"], made["best_priority"]) == ("bob", True, 5, -2)
    assert (key.requests_per_minute, key.tokens_per_minute, key.concurrent) == (60, 9000, 4)
    assert key.models == ("a", "b")
    assert key.expires is not None
    assert abs(key.expires - time.time() - 30 * 86_400) < 600
    assert "digest" not in made
    assert made == told("list")[0]


def test_edit_changes_what_is_given_and_nothing_else(home: Path) -> None:
    token = done("create", "c", "--rpm", "5", "--tpm", "7", "--models", "x")
    before = found(home, token)
    edited = told("edit", "c", "--rpm", "none", "--concurrent", "2", "--name", "d", "--models", "all", "--admin")
    key = found(home, token)
    assert before is not None
    assert key is not None
    assert (key.requests_per_minute, key.tokens_per_minute, key.concurrent, key.models) == (None, 7, 2, ())
    assert (key.id, key.name, key.admin, edited["name"]) == (before.id, "d", True, "d")
    done("edit", "d", "--no-admin", "--expires", "2030-01-31")
    key = found(home, token)
    assert key is not None
    assert (key.admin, key.expires) == (False, 1_896_048_000.0)
    done("edit", "d", "--expires", "never")
    assert found(home, token).expires is None  # type: ignore[union-attr]


def test_a_class_that_is_not_given_gives_way(home: Path) -> None:
    token = done("create", "e", "--priority", "-5")
    key = found(home, token)
    assert key is not None
    assert (key.priority, key.best_priority) == (-5, -5)
    done("edit", "e", "--best-priority", "10")
    key = found(home, token)
    assert key is not None
    assert (key.priority, key.best_priority) == (10, 10)
    assert "best_priority" in one_error_line(keys("edit", "e", "--priority", "1", "--best-priority", "2"))


def test_rotate_gives_the_same_key_another_token(home: Path) -> None:
    old = done("create", "f", "--rpm", "5")
    before = found(home, old)
    new = told("rotate", "f")["key"]
    after = found(home, new)
    assert found(home, old) is None
    assert before is not None
    assert after is not None
    assert (after.id, after.requests_per_minute) == (before.id, 5)


def test_revoke(home: Path) -> None:
    tokens = [done("create", name) for name in "gh"]
    assert told("revoke", "g")["revoked"]
    assert [found(home, token) is None for token in tokens] == [True, False]
    last = keys("revoke", "h")
    assert (last.code, last.out) == (0, "revoked h\n")
    assert "still needs one" in last.err


def test_the_table(home: Path) -> None:
    token = done("create", "i", "--rpm", "60", "--models", "a,b", "--expires", "2020-01-01")
    header, row = done("list").splitlines()
    assert header.split()[:3] == ["NAME", "KEY", "ADMIN"]
    assert [cell in row for cell in ("i", f"…{token[-4:]}", "60", "a, b", "2020-01-01 00:00Z (expired)")] == [True] * 5


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("create", "taken"), "rotate it"),
        (("create", "api-key"), "serve --api-key"),
        (("create", ""), "letters"),
        (("create", " x"), "letters"),
        (("create", "a\nb"), "letters"),
        (("create", "é"), "letters"),
        (("create", "x" * 65), "letters"),
        (("edit", "nobody", "--rpm", "5"), "there are: taken"),
        (("edit", "taken", "--name", "api-key"), "serve --api-key"),
        (("rotate", "nobody"), "no key named 'nobody'"),
        (("revoke", "nobody"), "no key named 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_one_line(args: tuple[str, ...], words: str) -> None:
    done("create", "taken")
    assert words in one_error_line(keys(*args))
    assert [key["name"] for key in told("list")] == ["taken"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--rpm", "0"), ("--tpm", "-1"), ("--concurrent", "x"), ("--rpm", "9" * 30), ("--models", ","),
     ("--expires", "soon"), ("--priority", "101"), ("--best-priority", "-101")],
)  # fmt: skip
def test_wrong_usage(home: Path, option: str, value: str) -> None:
    assert keys("create", "j", f"{option}={value}").code == 2
    assert not (home / "keys.json").exists()


def test_another_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("create", "k", "--keys-file", str(tmp_path / "deep" / "other.json"))
    monkeypatch.setenv("MILLSTREAM_KEYS_FILE", str(tmp_path / "deep" / "other.json"))
    assert [key["name"] for key in told("list")] == ["k"]
    assert not (home / "keys.json").exists()


def test_a_file_that_is_none_is_told(home: Path) -> None:
    (home / "keys.json").write_text("{")
    (home / "keys.json").chmod(0o600)
    for args in (("list",), ("create", "x"), ("revoke", "x")):
        assert "is not a file of keys" in one_error_line(keys(*args))
    (home / "keys.json").chmod(0o666)
    assert "chmod 600" in one_error_line(keys("list"))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Cannot write" in one_error_line(keys("create", "x", "--keys-file", str(tmp_path / "file" / "keys.json")))


def test_serve_does_not_start_with_keys_that_cannot_be_read(home: Path) -> None:
    """A server that ignored them would be open."""
    (home / "keys.json").write_text("{")
    (home / "keys.json").chmod(0o600)
    assert "is not a file of keys" in one_error_line(millstream("serve", "nothing.gguf", "--no-fetch"))


def test_the_single_key_is_not_in_any_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_API_KEY", "sk-of-mine")
    made = millstream("serve", str(tmp_path / "no.gguf"), "--no-fetch")
    assert made.code == 1
    assert "sk-of-mine" not in made.out + made.err
    assert parse_api_key("sk-of-mine") == digest_of(b"sk-of-mine")
    for text in ("", " ", "a b ", "é", "a\n"):
        with pytest.raises(typer.BadParameter):
            parse_api_key(text)


def test_values() -> None:
    assert [parse_limit(text) for text in ("1", "none", "NONE", "1000000000")] == [1, NO_LIMIT, NO_LIMIT, 10**9]
    assert parse_expiry("never") == NEVER
    assert parse_expiry("2030-01-31T12:00:00+02:00") == 1_896_084_000
    assert abs(parse_expiry("90m") - time.time() - 5400) < 60
    assert parse_models("a,b,a").names == ("a", "b")
    assert parse_models("all").names == ()
