"""`selftest`: the project's laws, tried on one model."""

from __future__ import annotations

from typing import Annotated

import typer


def selftest(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A .gguf file, or a name that `list` shows; SmolLM2 135M if not given."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of a table.")] = False,
    threads: Annotated[int, typer.Option("--threads", "-t", metavar="N", min=0, max=1024, help="0: all cores.")] = 0,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the random sequences and cuts.")] = 0,
    no_fetch: Annotated[bool, typer.Option("--no-fetch", help="Fail instead of fetching a missing model.")] = False,
) -> None:
    """Check that a model's answers obey the laws: one end, the same however cut, streamed or batched, nothing lost.

    Exit code 1 if a law is broken.
    """
    import asyncio

    import msgspec

    from millstream.cli.errors import CliError
    from millstream.cli.fetching import find_or_fetch
    from millstream.engine.client import EngineStartError
    from millstream.engine.memory import NotEnoughMemory
    from millstream.models.errors import ModelFileError
    from millstream.selftest.report import show
    from millstream.selftest.run import run_selftest

    path = find_or_fetch(model, fetch=not no_fetch)
    try:
        report = asyncio.run(run_selftest(path, threads=threads, seed=seed))
    except (ModelFileError, NotEnoughMemory, EngineStartError) as error:
        raise CliError(str(error)) from None
    if as_json:
        print(msgspec.json.encode({"ok": report.ok, **msgspec.structs.asdict(report)}).decode())
    else:
        show(report)
    if not report.ok:
        raise typer.Exit(1)
