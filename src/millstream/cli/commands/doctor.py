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
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where the server would listen; as `serve` is set up.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", metavar="PORT", min=0, max=65535, help="As `serve` is set up.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Check whether this machine is ready to serve, and say how to mend what is not.

    Looks at the system, processors, instruction sets, folders, configuration, keys, the models' files, memory and the
    port; what is not given here is taken from the settings of `serve`.
    Exit code 1 if there is a problem.
    """
    import sys

    import msgspec

    from millstream.cli.configuration.group import given_file
    from millstream.cli.doctor.access import check_access
    from millstream.cli.doctor.machine import check_machine
    from millstream.cli.doctor.model import check_model
    from millstream.cli.doctor.places import check_places
    from millstream.cli.doctor.planned import planned
    from millstream.cli.doctor.port import check_port
    from millstream.cli.terminal import printable, styled

    root = cast(TyperGroup, context.find_root().command)
    plan = planned(root, given_file(context))
    plan = plan._replace(
        host=host or plan.host,
        port=plan.port if port is None else port,
        models=plan.models if model is None else [model],
    )
    findings = [
        *check_machine(),
        *check_places(root, given_file(context)),
        *check_access(plan),
        *(finding for each in plan.models for finding in check_model(each)),
        *check_port(plan.host, plan.port),
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
