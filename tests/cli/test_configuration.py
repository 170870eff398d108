"""Settings from the command line, the environment, a file and the defaults: which counts, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import tomllib
from pathlib import Path
from typing import cast

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.core import TyperGroup

from cli.command import millstream, one_error_line
from millstream.cli.app import app
from millstream.cli.configuration.check import checked
from millstream.cli.configuration.files import ConfigError, ConfigFile, read_file
from millstream.cli.configuration.options import settings_of

ROOT = cast(TyperGroup, typer.main.get_command(app))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    monkeypatch.delenv("MILLSTREAM_CONFIG", raising=False)
    return tmp_path


def write(home: Path, text: str) -> Path:
    path = home / "config.toml"
    path.write_text(text)
    return path


def shown(*args: str) -> dict[str, tuple[object, str, str | None]]:
    result = millstream("config", "show", "--json", *args)
    assert result.code == 0, result
    return {
        f"{row['command']} {row['option']}": (row["value"], row["source"], row.get("place"))
        for row in json.loads(result.out)
    }


def test_every_option_has_one_name_and_one_variable() -> None:
    settings = settings_of(ROOT)
    assert len({setting.name for setting in settings}) == len(settings)
    assert len({setting.variable for setting in settings}) == len(settings)
    names = {setting.name: setting.variable for setting in settings}
    assert names["serve.port"] == "MILLSTREAM_SERVE_PORT"
    assert names["serve.kv-cache"] == "MILLSTREAM_SERVE_KV_CACHE"
    assert names["bench.engine.json"] == "MILLSTREAM_BENCH_ENGINE_JSON"
    assert names["serve.models"] == "MILLSTREAM_SERVE_MODELS"
    assert "run.prompt" not in names


def test_a_command_line_beats_a_variable_beats_the_file_beats_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model_of(*args: str) -> str:
        return one_error_line(millstream("run", "hi", *args)).split("'")[1]

    assert shown("run")["run model"] == (None, "default", None)
    write(home, '[run]\nmodel = "from-file"\n')
    assert model_of() == "from-file"
    assert shown()["run model"] == ("from-file", "file", f"{home / 'config.toml'}:2")
    monkeypatch.setenv("MILLSTREAM_RUN_MODEL", "from-variable")
    assert model_of() == "from-variable"
    assert shown()["run model"] == ("from-variable", "environment", "MILLSTREAM_RUN_MODEL")
    assert model_of("-m", "from-line") == "from-line"


@pytest.mark.parametrize("before", [True, False])
def test_a_file_is_named_before_or_behind_the_command(before: bool, tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text('[run]\nmodel = "other"\n')
    args = ("--config", str(path), "run", "hi") if before else ("run", "hi", "--config", str(path))
    assert "'other'" in one_error_line(millstream(*args))


def test_a_file_is_named_by_a_variable_and_an_empty_one_is_none(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "[serve]\nport = 1234\n")
    other = tmp_path / "named.toml"
    other.write_text("[serve]\nport = 4321\n")
    assert shown()["serve port"][0] == 1234
    monkeypatch.setenv("MILLSTREAM_CONFIG", str(other))
    assert shown()["serve port"][0] == 4321
    monkeypatch.setenv("MILLSTREAM_CONFIG", "")
    assert shown()["serve port"] == (8000, "default", None)


def test_lists_and_flags_come_from_all_sources(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, '[serve]\nallow-origin = ["http://a", "http://b"]\nno_fetch = true\n')
    assert shown()["serve allow-origin"][0] == ["http://a", "http://b"]
    assert "millstream pull" in one_error_line(millstream("serve", "--port", "0"))
    monkeypatch.setenv("MILLSTREAM_SERVE_ALLOW_ORIGIN", "http://c http://d")
    assert shown()["serve allow-origin"][0] == ["http://c", "http://d"]


def test_defaults_are_shown_when_they_are_asked_for(home: Path) -> None:
    for command, at_default in (((), "everything is"), (("serve",), "all of serve is")):
        told = millstream("config", "show", *command)
        assert (told.code, told.out.startswith(at_default)) == (0, True), told
        assert "serve port = 8000  (default)\n" in millstream("config", "show", *command, "--all").out
    write(home, "[serve]\nport = 1\n[run]\ntemperature = 1\n")
    assert millstream("config", "show", "serve").out == f"serve port = 1  ({home / 'config.toml'}:2)\n"


WRONG = {
    "unknown option": ("[serve]\n\nthreds = 3\n", 3, "did you mean 'threads'"),
    "unknown command": ("[srve]\nport = 1\n", 1, "did you mean 'serve'"),
    "out of range": ("# comment\n[serve]\nport = 70000\n", 3, "serve.port is wrong"),
    "wrong type": ('[serve]\nport = "many"\n', 2, "serve.port is wrong"),
    "a flag that is a number": ("[serve]\nno-fetch = 1\n", 2, "takes true or false, not 1"),
    "a list for one value": ("[serve]\nhost = ['a', 'b']\n", 2, "takes one value, not a list"),
    "one value for a list": ("[serve]\nallow-host = 'a'\n", 2, "takes a list"),
    "a value for a command": ("serve = 3\n", 1, "takes a table: [serve]"),
    "no size": ('[run]\nkv-cache = "12"\n', 2, "is not a size"),
    "behind a long value": ('[serve]\nallow-host = [\n  "a",\n  "port = 3",\n]\nprot = 1\n', 6, "did you mean 'port'"),
    "twice": ("[serve]\nmax-batch = 3\nmax_batch = 4\n", 3, "is set twice"),
    "above what the API takes": ("[run]\ntemperature = 5\n", 2, "run.temperature is wrong"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_with_its_line(case: str, home: Path) -> None:
    text, line, words = WRONG[case]
    path = write(home, text)
    for args in (("run", "hi", "--no-fetch"), ("config", "check")):
        result = millstream(*args)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(f"error: {path}:{line}: "), result.err
        assert words in result.err


def test_all_faults_are_told_at_once(home: Path) -> None:
    write(home, "[serve]\nport = -1\nhots = 'x'\n")
    assert millstream("config", "check").err.count("error: ") == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [(b"[serve\n", "not TOML"), (b"\xff\xfe", "not UTF-8"), (b"#" * (1 << 20) + b"#", "larger than 1 MiB")],
)
def test_what_is_no_toml_is_one_line(text: bytes, words: str, home: Path) -> None:
    (home / "config.toml").write_bytes(text)
    result = millstream("list")
    assert result.code == 2
    assert words in result.err
    assert result.err.count("\n") == 1


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.ir.files.read_small.__kwdefaults__", {"pipe_seconds": 0.01})
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "pipe", "It is a pipe"),
        (tmp_path, "Is a directory"),
        ("/dev/zero", "larger than"),
    ):
        result = millstream("config", "check", "--config", str(path))
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(f"error: {path}: cannot be read: "), result.err
        assert words in result.err


def test_a_pipe_with_a_writer_is_a_file_like_others(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("[serve]\nport = 7\n",))
    writer.start()
    assert shown("serve", "--config", str(tmp_path / "pipe"))["serve port"][:2] == (7, "file")
    writer.join()


def test_a_file_that_is_named_must_be_there() -> None:
    result = millstream("list", "--config", "/nowhere/config.toml")
    assert (result.code, result.out) == (2, "")
    assert "no such file" in result.err


def test_help_needs_no_sound_file(home: Path) -> None:
    write(home, "nonsense")
    assert millstream("serve", "--help").code == 0
    assert millstream("config", "path").out == f"{home / 'config.toml'}\n"


def test_a_variable_with_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_SERVE_PORT", "70000")
    result = millstream("serve")
    assert result.code == 2
    assert "MILLSTREAM_SERVE_PORT is wrong" in result.err


def test_a_variable_that_sets_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_LIST_JSN", "1")
    assert "warning: MILLSTREAM_LIST_JSN sets nothing" in millstream("list").err
    assert millstream("config", "check").code == 2


def test_init_writes_a_file_that_sets_nothing_and_takes_every_default(home: Path) -> None:
    path = home / "config.toml"
    assert millstream("config", "init").out == f"{path}\n"
    assert not any(tomllib.loads(path.read_text()).get("serve", {}))
    assert millstream("config", "check").out == f"{path}: 0 settings, all known\n"
    assert "--force" in one_error_line(millstream("config", "init"))
    text = path.read_text()
    for setting in settings_of(ROOT):
        assert f"\n#{setting.key} = " in text
        assert setting.variable in text
    lines = [line.removeprefix("#") if _has_default(line) else line for line in text.splitlines()]
    write(home, "\n".join(lines))
    assert millstream("config", "check").code == 0, millstream("config", "check").err


def _has_default(line: str) -> bool:
    """Whether a line is ``#key = VALUE`` with a value and not with the name of one."""
    if not line.startswith("#") or line.startswith("# "):
        return False
    try:
        tomllib.loads(line.removeprefix("#"))
    except tomllib.TOMLDecodeError:
        return False
    return True


def test_secrets_are_not_shown(home: Path) -> None:
    for setting in settings_of(ROOT):
        if setting.secret and not setting.many:
            table = ".".join(setting.path)
            write(home, f'[{table}]\n{setting.key} = "sesame"\n')
            assert "sesame" not in millstream("config", "show", "--all").out


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["serve", "run", "port", "model", "config", "x", ""]), inner, max_size=4)
        ),
        max_leaves=12,
    ).filter(lambda data: isinstance(data, dict))
)
def test_any_data_is_taken_or_refused(data: dict[str, object]) -> None:
    file = ConfigFile(Path("file"), "", data)
    with contextlib.suppress(ConfigError):
        assert all(path[0] in data for path in checked(ROOT, file).values)


@settings(max_examples=40)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_file_or_a_reason(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(raw)
    with contextlib.suppress(ConfigError):
        assert read_file(path, must_exist=True) is not None
