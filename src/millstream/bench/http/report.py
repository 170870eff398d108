"""What was measured, as tables and as a plot of the times to the first token and between tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from millstream.bench.http.figures import Figures, Spread
from millstream.bench.http.run import HttpReport, Measured

_Figure = Callable[[Figures], float | None]
_PLOT_ROWS = 14


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
    table.add_column(f"{baseline.url}\n{baseline.model}", justify="right")
    for other in others:
        table.add_column(f"{other.url}\n{other.model}", justify="right")
        table.add_column("ratio", justify="right")
    has_limit = report.limit.first_token is not None or report.limit.per_token is not None
    for title, figure, form in _ROWS:
        if title.startswith("good") and not has_limit:
            continue
        cells = [format(baseline.median(figure), form)]
        for other in others:
            cells += [format(other.median(figure), form), format(other.ratio(baseline, figure), ".2f")]
        table.add_row(title, *cells)
    return table


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
    for name, values in curves:
        if values:
            ordered = sorted(values)
            parts = [(at + 1) / len(ordered) for at in range(len(ordered))]
            plotext.plot([1000 * value for value in ordered], parts, label=name)
    return str(plotext.build())
