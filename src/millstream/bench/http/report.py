"""What was measured, as tables and as a plot of the times to the first token and between tokens."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from millstream.bench.http.figures import Figures, Spread
from millstream.bench.http.run import HttpReport, Measured

_Figure = Callable[[Figures], float | None]
_PLOT_ROWS = 14
_PICTURE_WIDTH = 110
_MARKERS = ("hd", "braille", "x", "o")
"""Curves are told apart by them: a terminal may have no colours."""


def _of(name: str, part: str) -> _Figure:
    """A percentile in milliseconds."""

    def figure(one: Figures) -> float | None:
        found: Spread | None = getattr(one, name)
        return None if found is None else 1000 * float(getattr(found, part))

    return figure


_ROWS: tuple[tuple[str, _Figure, str], ...] = (
    ("output tokens per second", lambda one: one.token_rate, ".1f"),
    ("requests per second", lambda one: one.request_rate, ".2f"),
    ("good requests per second", lambda one: one.good_rate, ".2f"),
    *(
        (f"{title}, {part}, ms", _of(name, part), ".1f")
        for title, name in (
            ("first token", "first_token"),
            ("between tokens", "inter_token"),
            ("per token", "per_token"),
        )
        for part in ("p50", "p90", "p99")
    ),
)


def render_http(report: HttpReport, *, plot: bool, width: int = 80) -> RenderableType:
    """Tables of all servers, the first of which is the baseline of the ratios, and a plot if wanted."""
    parts: list[RenderableType] = [_head(report), _table(report), *_troubles(report.servers)]
    if plot:
        parts += [Text.from_ansi(picture) for picture in _plots(report.servers, width)]
    return Group(*parts)


def save_picture(report: HttpReport, path: Path) -> None:
    """Tables and plots as an SVG that loads nothing from elsewhere. Raises `OSError`."""
    paper = Console(record=True, width=_PICTURE_WIDTH, file=io.StringIO())
    paper.print(render_http(report, plot=True, width=_PICTURE_WIDTH - 2))
    path.write_text(standalone(paper.export_svg(title=f"millstream bench http: {report.workload.name}")), "utf-8")


def standalone(svg: str) -> str:
    """Rich's SVG of a terminal without fonts from elsewhere, and the same in every run: its classes are numbered at
    random."""
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.S)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace")
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return re.sub(r"<!-- Generated with .*? -->\s*", "", svg)


def _head(report: HttpReport) -> Text:
    load = report.workload
    how = f"{load.concurrency} at a time" if load.rate is None else f"{load.rate:g} per second (Poisson)"
    rounds = len(report.servers[0].rounds)
    text = f"{load.name}: {load.requests} requests, {how}, {load.max_tokens} tokens each; medians of {rounds} rounds"
    limit = report.limit
    named = (("first token", limit.first_token), ("per token", limit.per_token))
    limits = [f"{name} {1000 * value:g} ms" for name, value in named if value is not None]
    return Text(text + (f"\ngood: {', '.join(limits)}" if limits else ""))


def _table(report: HttpReport) -> Table:
    table = Table()
    table.add_column("")
    baseline, *others = report.servers
    _add_server(table, baseline)
    for other in others:
        _add_server(table, other)
        table.add_column("ratio", justify="right")
    has_limit = report.limit.first_token is not None or report.limit.per_token is not None
    for title, figure, form in _ROWS:
        if title.startswith("good") and not has_limit:
            continue
        cells = [_number(baseline.median(figure), form)]
        for other in others:
            cells += [_number(other.median(figure), form), _number(other.ratio(baseline, figure), ".2f")]
        table.add_row(title, *cells)
    return table


def _add_server(table: Table, server: Measured) -> None:
    # Whole, as addresses often differ in their last characters alone.
    table.add_column(Text(f"{server.url}\n{server.model}"), justify="right", overflow="fold")


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def _troubles(servers: Sequence[Measured]) -> list[Text]:
    """What a reader has to know before believing the numbers."""
    found = []
    for server in servers:
        failed = sum(one.failed for one in server.rounds)
        if failed:
            why = next(one.error for one in server.rounds if one.error)
            found.append(Text(f"{server.url}: {failed} requests failed; the first: {why}", style="yellow"))
        cached, prompt = (
            sum(getattr(one, name) for one in server.rounds) for name in ("cached_tokens", "prompt_tokens")
        )
        if cached:
            found.append(Text(f"{server.url}: {cached / prompt:.0%} of the prompt tokens came from its prefix cache"))
    return found


def _plots(servers: Sequence[Measured], width: int) -> list[str]:
    """How many of the times are below a value: one curve a server."""
    return [
        _plot("first token", [(server.url, server.first_tokens) for server in servers], width),
        _plot("between tokens", [(server.url, server.inter_tokens) for server in servers], width),
    ]


def _plot(title: str, curves: Sequence[tuple[str, Sequence[float]]], width: int) -> str:
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, _PLOT_ROWS)
    plotext.title(f"{title}: part of all below so many ms")
    for (name, values), marker in zip(curves, itertools.cycle(_MARKERS), strict=False):
        if values:
            ordered = sorted(values)
            parts = [(at + 1) / len(ordered) for at in range(len(ordered))]
            plotext.plot([1000 * value for value in ordered], parts, label=name, marker=marker)
    return str(plotext.build())
