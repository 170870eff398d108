"""`doctor`: is this machine ready to serve?"""

from __future__ import annotations

from typing import Annotated, cast

import typer
from typer.core import TyperGroup

from millstream.cli.options import ModelOption

_MARKS = {"ok": ("ok", "32"), "warning": ("warning", "33"), "problem": ("problem", "1;31")}


def doctor(
    context: typer.Context,
    model: ModelOption = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where the server would listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", metavar="PORT", min=0, max=65535)] = 8000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Check whether this machine is ready to serve, and say how to mend what is not.

    Looks at the system, processors, instruction sets, memory, folders, configuration, the model's file and the port.
    Exit code 1 if there is a problem.
    """
    import sys

    import msgspec

    from millstream.cli.configuration.group import given_file
    from millstream.cli.doctor.machine import check_machine
    from millstream.cli.doctor.model import check_model
    from millstream.cli.doctor.places import check_places
    from millstream.cli.doctor.port import check_port
    from millstream.cli.terminal import printable, styled

    root = cast(TyperGroup, context.find_root().command)
    findings = [
        *check_machine(),
        *check_places(root, given_file(context)),
        *check_model(model),
        *check_port(host, port),
    ]
    sound = not any(finding.state == "problem" for finding in findings)
    if as_json:
        print(msgspec.json.encode({"ok": sound, "findings": findings}).decode())
    else:
        for finding in findings:
            word, colour = _MARKS[finding.state]
            text = printable(f"{finding.name}: {finding.text}", sys.stdout)
            print(f"{styled(word.ljust(8), colour, sys.stdout)} {text}")
            if finding.mend:
                print(f"         -> {printable(finding.mend, sys.stdout)}")
    if not sound:
        raise typer.Exit(1)
