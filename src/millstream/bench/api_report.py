"""The API benchmark's results as a table."""

from __future__ import annotations

import statistics

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from millstream.bench.api import ApiReport


def render_api(report: ApiReport) -> RenderableType:
    """One row per server, surface and number of streams."""
    table = Table(title="API process: processor time per streamed token", title_justify="left")
    for title in ("server", "surface"):
        table.add_column(title)
    for title in ("streams", "µs / token", "best", "µs / request", "requests/s"):
        table.add_column(title, justify="right")
    for case in report.cases:
        table.add_row(
            case.server,
            case.surface,
            str(case.streams),
            f"{statistics.median(case.token_us):.1f}",
            f"{case.best_us:.1f}",
            f"{statistics.median(case.request_us):.0f}",
            f"{case.requests_per_second:.1f}",
        )
    note = (
        f"Answers of {report.tokens} tokens, one event each, over loopback, against short ones. The µs are medians of "
        "the samples. Every text and end was checked."
    )
    return Group(table, Text(note, style="dim"))
