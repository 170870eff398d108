"""`completion`: the shell completes commands, options and model names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "_MILLSTREAM_COMPLETE"
"""Set by the scripts when they ask for words; Typer's convention."""

Shell = Literal["bash", "zsh", "fish"]


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
    install: Annotated[
        bool, typer.Option("--install", help="Write it where the shell looks for it, and say what else it needs.")
    ] = False,
) -> None:
    """Print a script that lets the shell complete commands, options and model names.

    In bash for this session: eval "$(millstream completion bash)"
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # Typer has no other name for it

    from millstream.cli.errors import CliError

    script = get_completion_script(prog_name="millstream", complete_var=VARIABLE, shell=shell)
    if not install:
        print(script)
        return
    place, hint = _PLACES[shell]
    path = place()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{script}\n", encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from None
    print(f"{path}\n{hint}")


def _bash() -> Path:
    return _data_home() / "bash-completion" / "completions" / "millstream"


def _zsh() -> Path:
    return Path.home() / ".zfunc" / "_millstream"


def _fish() -> Path:
    import os

    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "fish" / "completions" / "millstream.fish"


def _data_home() -> Path:
    import os

    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()


_PLACES: dict[Shell, tuple[Callable[[], Path], str]] = {
    "bash": (_bash, "New shells read it if the package bash-completion is installed."),
    "zsh": (_zsh, "~/.zshrc must have, before compinit: fpath+=~/.zfunc; then: autoload -Uz compinit; compinit"),
    "fish": (_fish, "New shells read it."),
}
