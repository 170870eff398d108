"""Every command of the documentation, run in the order of its page in a fresh home, with a small real model.

A block that starts `millstream serve` or `make serve` leaves the server running for the rest of the page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

import pytest

from support.pages import ROOT, RUN, Block, blocks, commands, indented_commands, matches, pages
from support.real_models import REAL_MODELS, find_real_model, real_model

_SERVE = re.compile(r"(?:^|\s)(?:\.venv/bin/)?(?:millstream serve|make serve)\b(?P<options>[^\n]*)")
_READY = re.compile(r"ready: .*?(http://\S+)")
_SECONDS = 120

PAGES = [page for page in pages() if blocks(page.read_text(encoding="utf-8"))]
REASONS = (
    "by `make agents`",
    "by `make test-js`",
    "by `make test`",
    "by `make soak`",
    "needs a terminal",
    "needs another program",
    "takes minutes",
    "changes the machine",
)
"""What a page may say about a block that is not run here, to begin with."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_commands_stand_in_blocks_that_are_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert indented_commands(text) == []
    for block in blocks(text):
        if block.not_run is not None:
            assert block.not_run.startswith(REASONS), f"line {block.line}: {block.not_run}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_for_any_shell(page: Path) -> None:
    """They run in bash here, as readers may have it; nothing may need it."""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language in ("sh", "console"):
            text = "\n".join(command.text for command in commands(block))
            read = subprocess.run([shutil.which("dash") or "sh", "-n"], input=text, capture_output=True, text=True)
            assert read.returncode == 0, f"line {block.line}: {read.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_data_can_be_read(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)


def free_port() -> str:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Reader:
    """Someone who follows the pages: a home, a folder, a shell and at most one server, which stays for the next page if
    that one starts the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        models = folder / "home" / ".cache" / "millstream" / "models"
        models.mkdir(parents=True)
        for path in filter(None, map(find_real_model, REAL_MODELS)):
            (models / path.name).symlink_to(path)
        self._home = folder / "home"
        self._server: subprocess.Popen[str] | None = None
        self._options = ""
        self._port = free_port()

    def follow(self, block: Block) -> None:
        """Run a block; fails with what it printed."""
        if block.language == "python":
            self._execute(block)
            return
        for command in commands(block):
            serve = _SERVE.search(command.text)
            if serve:
                self._serve(serve["options"])
                continue
            printed = self._run(["bash", "-euo", "pipefail", "-c", self._here(command.text)], block)
            if command.output:
                assert matches(command.output, printed), f"line {block.line}: {command.text}\nprinted {printed}"

    def _here(self, text: str) -> str:
        return re.sub(r"\b8000\b", self._port, text).replace(".venv/bin/", "")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MILLSTREAM_", "OPENAI_"))}
        folders = {"CACHE": ".cache", "CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state"}
        home = {f"XDG_{name}_HOME": str(self._home / folder) for name, folder in folders.items()}
        home |= {"HOME": str(self._home), "NO_COLOR": "1"}
        return {**kept, **home, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", "COLUMNS": "100"}

    def _execute(self, block: Block) -> None:
        """In this process, since importing a client takes longer than what most blocks do with it."""
        code = compile(self._here(block.text), f"block at line {block.line}", "exec", dont_inherit=True)
        with chdir(self.folder), patch.dict(os.environ, self._environment(), clear=True):
            exec(code, {"__name__": "__main__"})

    def _run(self, command: list[str], block: Block) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
        assert done.returncode == 0, f"line {block.line}: exit code {done.returncode}\n{block.text}\n{done.stdout}"
        return done.stdout

    def _serve(self, options: str) -> None:
        options = options.partition("#")[0]
        if self._server is not None and options == self._options:
            return
        self.leave()
        self._options = options
        self._port = free_port()  # of this moment: others take ports meanwhile
        options = self._here(options)
        if "--port" not in options:
            options += f" --port {self._port}"
        log = self.folder.parent / "server.log"
        with log.open("w") as output:
            self._server = subprocess.Popen(
                ["bash", "-c", f"exec millstream serve {options}"],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert _READY.search(line), f"no server: {line}{log.read_text()}"

    def leave(self) -> None:
        """Ctrl-C."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._server.communicate(timeout=60)
            self._server = None


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    real_model("smollm2")
    reader = Reader(tmp_path_factory.mktemp("reader"))
    try:
        yield reader
    finally:
        reader.leave()


def _to_run(page: Path) -> list[Block]:
    found = blocks(page.read_text(encoding="utf-8"))
    return [block for block in found if block.language in RUN and block.not_run is None]


def _server_of(page: Path) -> str:
    """Pages that start the same server stand together."""
    found = [_SERVE.search(block.text) for block in _to_run(page)]
    return next((serve["options"] for serve in found if serve), "")


@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("curl") is None, reason="needs bash and curl")
@pytest.mark.parametrize("page", sorted(filter(_to_run, PAGES), key=_server_of), ids=name_of)
def test_a_reader_can_follow(page: Path, reader: Reader) -> None:
    for block in _to_run(page):
        reader.follow(block)
