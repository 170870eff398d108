"""`lint`: a captured stream of any server, judged by the wire rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

_MOST_BYTES = 1 << 30
_OTHER_NAMES = {"chat_completions": "chat"}
"""What a server's metrics and lists of requests call a surface."""

_STREAM_SECONDS = 3600.0
"""`lint <(curl …)` reads while the model writes."""


def lint(
    capture: Annotated[str, typer.Argument(metavar="FILE", help="A captured response body; - reads standard input.")],
    surface: Annotated[str, typer.Option(metavar="NAME", help="chat, completions, responses or messages.")],
    choices: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1024, help="Choices asked for; as captured if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Check a streamed answer of any server against the wire rules, and explain each fault.

    Capture one with `curl -sN`. What `-i` and `--raw` add (the head, the chunks) and a request before it are read and
    checked too. Exit code 1 if there are faults.
    """
    import msgspec

    from millstream.cli.terminal import printable
    from millstream.lint.explain import SURFACES, lint_capture

    surface = _OTHER_NAMES.get(surface, surface)
    if surface not in SURFACES:
        raise typer.BadParameter(f"{surface!r} is none of {', '.join(SURFACES)}", param_hint="--surface")
    faults = lint_capture(_read(capture), surface, choices=choices)
    if as_json:
        report = {"surface": surface, "ok": not faults, "faults": faults}
        print(msgspec.json.encode(report).decode())
    else:
        for fault in faults:
            place = f"line {fault.line}" if fault.line is not None else "stream"
            place += f", frame {fault.frame}" if fault.frame is not None else ""
            print(printable(f"{place}: [{fault.rule}] {fault.message}", sys.stdout))
            if fault.expected:
                print(f"    expected: {fault.expected}")
        count = f"{len(faults)} fault{'' if len(faults) == 1 else 's'}"
        print(f"{surface}: {count if faults else 'legal'}")
    if faults:
        raise typer.Exit(1)


def _read(name: str) -> bytes:
    from millstream.cli.errors import CliError
    from millstream.ir.files import read_small

    try:
        if name == "-":
            return sys.stdin.buffer.read()
        return read_small(Path(name), _MOST_BYTES, pipe_seconds=_STREAM_SECONDS)
    except OSError as error:
        raise CliError(f"cannot read {name}: {error.strerror}") from None
