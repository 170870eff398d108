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
    for title in ("streams", "µs", "best µs", "requests/s"):
        table.add_column(title, justify="right")
    for case in report.cases:
        table.add_row(
            case.server,
            case.surface,
            str(case.streams),
            f"{statistics.median(case.token_us):.1f}",
            f"{case.best_us:.1f}",
            f"{case.requests_per_second:.1f}",
        )
    note = (
        f"Answers of {report.tokens} tokens, one event each, over loopback; the cost of the requests themselves is in "
        "it. µs is the median of the samples. Every text and end was checked."
    )
    return Group(table, Text(note, style="dim"))
