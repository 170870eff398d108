"""The shell completes commands, options and model names, and a script for it can be printed or installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.command import environment, millstream


def words(line: str, **changes: str) -> list[str]:
    """What bash would offer at the end of this line."""
    count = len(line.split(" ")) - 1
    asked = environment(_MILLSTREAM_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(count), **changes)
    script = "import sys; sys.argv[0] = 'millstream'; from millstream.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=asked, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_options_and_models_are_completed(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    mine = tmp_path / "models" / "mine.gguf"
    mine.touch()
    home = {"MILLSTREAM_HOME": str(tmp_path)}
    assert words("millstream con", **home) == ["config"]
    assert "--kv-cache" in words("millstream serve --k", **home)
    assert words("millstream serve smol", **home) == ["smollm2-135m-instruct"]
    assert words(f"millstream run hi -m {tmp_path}", **home) == [str(mine)]


def test_to_complete_loads_little() -> None:
    code = (
        "import os, sys\nos.environ['_MILLSTREAM_COMPLETE'] = 'complete_bash'\n"
        "os.environ.update(COMP_WORDS='millstream serve smol', COMP_CWORD='2')\nsys.argv[0] = 'millstream'\n"
        "from millstream.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = 'numpy', 'uvicorn', 'starlette', 'tokenizers', 'jinja2', 'rich'\n"
        "print('loaded:', *[name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_sound(shell: str) -> None:
    result = millstream("completion", shell)
    assert (result.code, result.err) == (0, "")
    assert "_MILLSTREAM_COMPLETE=complete_" in result.out
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=result.out, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_install_writes_the_script_and_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for shell in ("bash", "zsh", "fish"):
        path = millstream("completion", shell, "--install").out.splitlines()[0]
        assert Path(path).read_text() == millstream("completion", shell).out
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "_millstream",
        "millstream",
        "millstream.fish",
    ]


def test_an_unknown_shell_is_wrong_usage() -> None:
    assert millstream("completion", "tcsh").code == 2
