"""Finding records in a journal, and showing them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from millstream.cli.errors import CliError
from millstream.cli.terminal import note, printable
from millstream.journal.files import read_records
from millstream.journal.records import Record


def records_of(folder: Path) -> list[Record]:
    """All records, oldest first; damaged ones are told on stderr and left out. Raises `CliError`."""
    if not folder.is_dir():
        raise CliError(f"{folder} is no folder; `serve --journal DIR` writes a journal")
    try:
        return list(read_records(folder, lambda text: note(f"warning: {text}")))
    except OSError as error:
        raise CliError(f"cannot read the journal in {folder}: {error.strerror}") from None


def find_record(folder: Path, name: str) -> Record:
    """The record with this request id, or the only one whose id begins so; of several with one id, the newest.

    Raises:
        CliError: there is none, or it could be several.
    """
    records = records_of(folder)
    found = [record for record in records if record.id == name] or [
        record for record in records if name and record.id.startswith(name)
    ]
    if not found:
        raise CliError(f"no request {name!r} in {folder}; `millstream journal list` shows those that are there")
    ids = {record.id for record in found}
    if len(ids) > 1:
        raise CliError(f"{name!r} could be any of {len(ids)} requests: {', '.join(sorted(ids)[:5])}")
    if len(found) > 1:
        note(f"warning: {len(found)} requests have the id {found[0].id}; this is the newest")
    return found[-1]


def summary(record: Record) -> dict[str, Any]:
    """One line of the list."""
    return {
        "id": record.id,
        "time": record.time,
        "seconds": record.seconds,
        "surface": record.surface,
        "status": record.status,
        "whole": record.whole,
        "model": record.model.name if record.model is not None else None,
        "sequences": len(record.sequences),
        "prompt_tokens": sum(each.prompt_length for each in record.sequences),
        "tokens": sum(len(each.tokens) for each in record.sequences),
    }


def print_list(records: list[Record]) -> None:
    """A table, one request a line."""
    rows = [("TIME", "ID", "SURFACE", "STATUS", "PROMPT", "TOKENS", "SECONDS", "MODEL")]
    for record in records:
        line = summary(record)
        rows.append(
            (
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.time)),
                record.id,
                record.surface,
                f"{record.status}" if record.whole else f"{record.status} cut",
                str(line["prompt_tokens"]),
                str(line["tokens"]),
                f"{record.seconds:.2f}",
                line["model"] or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(
            printable(
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), sys.stdout
            ).rstrip()
        )
