"""`journal` and `replay`: what a server recorded, and whether it comes out the same again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from millstream.cli.replay import Outcome

journal_app = typer.Typer(name="journal", no_args_is_help=True, help="Look into the journal of `serve --journal`.")

FolderOption = Annotated[
    Path,
    typer.Option("--journal", "-j", metavar="DIR", help="The folder that `serve --journal` wrote to."),
]
FOLDER = Path("journal")
_DIFFERENT = 1


@journal_app.command("list")
def list_(
    folder: FolderOption = FOLDER,
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", min=0, help="Only the newest; 0: all.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON a request.")] = False,
) -> None:
    """List the requests of a journal, oldest first."""
    import msgspec

    from millstream.cli.journal import print_list, records_of, summary

    records = records_of(folder)[-last:]
    if not as_json:
        print_list(records)
        return
    for record in records:
        print(msgspec.json.encode(summary(record)).decode())


@journal_app.command()
def show(
    request: Annotated[str, typer.Argument(metavar="ID", help="The request's id, or how it begins.")],
    folder: FolderOption = FOLDER,
) -> None:
    """Print all that was recorded of one request, as JSON."""
    import msgspec

    from millstream.cli.journal import find_record
    from millstream.cli.terminal import printable

    record = find_record(folder, request)
    print(printable(msgspec.json.format(msgspec.json.encode(record)).decode(), sys.stdout))


def replay(
    request: Annotated[str | None, typer.Argument(metavar="ID", help="The request's id, or how it begins.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All requests of the journal.")] = False,
    folder: FolderOption = FOLDER,
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", metavar="FILE", help="The model's file; the recorded one if not given."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask a running server instead of loading the model here.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The key for that server.", envvar="MILLSTREAM_API_KEY")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON a sequence.")] = False,
) -> None:
    """Run recorded requests again and compare the tokens, one by one.

    The same model file gives the same tokens on every machine, in every batch, with any number of threads. What a
    client left or a stop string ended is compared as far as it came. Exit code 1 if a sequence differs or none could be
    compared.
    """
    from millstream.cli.journal import find_record, records_of
    from millstream.cli.replay import replay as run_again

    if every == (request is not None):
        raise typer.BadParameter("give one ID, or --all")
    if model is not None and url is not None:
        raise typer.BadParameter("--model and --url exclude each other")
    records = records_of(folder) if request is None else [find_record(folder, request)]
    outcomes = run_again(records, model=model, url=url, key=key)
    for outcome in outcomes:
        _show(outcome, as_json=as_json)
    compared = [outcome for outcome in outcomes if outcome.skipped is None]
    different = sum(outcome.difference is not None for outcome in compared)
    if not as_json:
        tokens = sum(outcome.tokens for outcome in compared)
        same, left_out = len(compared) - different, len(outcomes) - len(compared)
        print(f"{same} the same, {different} different, {left_out} not compared; {tokens} tokens")
    if different or not compared:
        raise typer.Exit(_DIFFERENT)


def _show(outcome: Outcome, *, as_json: bool) -> None:
    import msgspec

    from millstream.cli.terminal import printable

    name, found = outcome.record.id, outcome.difference
    if as_json:
        same = found is None if outcome.skipped is None else None
        line = {
            "id": name,
            "choice": outcome.choice,
            "tokens": outcome.tokens,
            "same": same,
            "skipped": outcome.skipped,
        }
        print(msgspec.json.encode({**line, "difference": found and found._asdict()}).decode(), flush=True)
        return
    if outcome.skipped is not None:
        text = f"not compared: {outcome.skipped}"
    elif found is None:
        text = f"the same, {outcome.tokens} tokens"
    else:
        where = "" if found.position is None else f" at token {found.position} of the answer"
        text = f"DIFFERENT{where}: recorded {found.recorded}, now {found.now}"
    print(printable(f"{name} choice {outcome.choice}: {text}", sys.stdout), flush=True)
