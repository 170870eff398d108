"""A benchmark's results as tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from millstream.bench.plan import Case
from millstream.bench.run import Report
from millstream.ir.sizes import size

QUIET = 0.05


def render(report: Report) -> RenderableType:
    """Speed, one row per case, then time and memory."""
    head = Text(
        f"{report.model} ({report.weights}, {size(report.file_bytes)}), {report.isa}, "
        f"{report.threads} {'thread' if report.threads == 1 else 'threads'}, keys and values in {report.kv_type}, "
        f"activations in {report.activations}"
    )
    return Group(head, _speed(report), _resources(report), *_notes(report))


def _speed(report: Report) -> Table:
    table = Table(title="Speed", title_justify="left")
    table.add_column("case")
    for title in ("tok/s", "best", "ms per step", "of memory bound"):
        table.add_column(title, justify="right")
    for case in report.plan.cases:
        rates = report.results.rates.get(case.name)
        if rates:
            rate = statistics.median(rates)
            table.add_row(
                Text(case.name),  # no markup
                f"{rate:.1f}",
                f"{max(rates):.1f}",
                _step_milliseconds(case, rate),
                _share(report, case, rate),
            )
    return table


def _step_milliseconds(case: Case, rate: float) -> str:
    return f"{1000 * case.sequences / rate:.2f}" if case.kind == "decode" and rate > 0 else ""


def _share(report: Report, case: Case, rate: float) -> str:
    """Weight bytes per second as a share of what memory can deliver: every decoding step reads all weights once."""
    if report.bandwidth is None or case.kind != "decode":
        return ""
    return f"{rate / case.sequences * report.weight_bytes / report.bandwidth.best:.0%}"


def _resources(report: Report) -> Table:
    table = Table(title="Time and memory", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in _figures(report):
        table.add_row(name, value)
    return table


def _figures(report: Report) -> Iterator[tuple[str, str]]:
    yield "engine loaded", f"{report.load_s:.2f} s"
    yield "engine's first tokens", f"{report.first_token_s:.2f} s"
    if report.server is not None:
        yield "server ready", f"{report.server.ready_s:.2f} s"
        yield (
            "server's memory: API + engine process",
            f"{size(report.server.api_bytes)} + {size(report.server.engine_bytes)}",
        )
    yield "weights", size(report.weight_bytes)
    yield "KV cache", size(report.kv_bytes)
    yield "resident, highest", f"{size(report.resident_bytes)}, {size(report.peak_bytes)}"
    without_kv = (report.peak_bytes - report.kv_bytes) / report.file_bytes
    yield "highest without KV cache / file", f"{without_kv:.2f}"
    if report.overhead is not None:
        overhead = report.overhead
        yield (
            f"Python in a step of {overhead.sequences}",
            (f"{overhead.python_share:.1%} ({1e6 * (overhead.step_seconds - overhead.native_seconds):.0f} µs)"),
        )
    if (structured := report.structured) is not None:
        forced = statistics.median(rate.forced for rate in structured.held)
        yield f"JSON schema, {structured.streams} streams / free text", _shares(*structured.shares(structured.held))
        yield f"same, sampling the {forced:.0%} forced tokens", _shares(*structured.shares(structured.sampled))
    if report.bandwidth is not None:
        yield (
            "memory read: best, median",
            f"{report.bandwidth.best / 1e9:.1f}, {report.bandwidth.median / 1e9:.1f} GB/s",
        )


def _shares(wall: float, processor: float) -> str:
    return f"{wall:.2f} (CPU {processor:.2f})"


def _notes(report: Report) -> Iterator[Text]:
    yield Text(
        "pp: prompt tokens until the first new one. tg xN: new tokens of N sequences together, after 128 tokens each. "
        "tok/s is the median of the samples.",
        style="dim",
    )
    if report.others_busy > QUIET:
        yield Text(
            f"Other programs used {report.others_busy:.0%} of the processors meanwhile: the engine can do better.",
            style="yellow",
        )
    if report.bandwidth is not None:
        yield Text(
            f"of memory bound: weight bytes of every step / bytes that {report.bandwidth.threads} threads read from a "
            f"{size(report.bandwidth.buffer_bytes)} array (numpy maximum, best pass).",
            style="dim",
        )
