"""The report as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millstream.selftest.run import Report


def show(report: Report) -> None:
    """Print a report; what failed is shown below the table."""
    formats = ", ".join(f"{kind}: {name}" for kind, name in report.formats.items())
    table = Table(title=f"{report.model} ({formats})", title_justify="left")
    for heading in ("law", "what", "cases", "result"):
        table.add_column(heading, justify="right" if heading == "cases" else "left")
    for result in report.results:
        verdict = Text("holds", "green") if result.failure is None else Text("BROKEN", "bold red")
        table.add_row(result.law, result.what, str(result.cases or "–"), verdict)
    console = Console()
    console.print(table)
    for result in report.results:
        if result.failure is not None:
            console.print(Text(f"{result.law}, {result.what}: {result.failure}"))
