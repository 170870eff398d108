"""Bench: a short benchmark of the server, beside the last one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import DataTable, Input, Label, Static
from textual.worker import Worker, get_current_worker

from millstream.bench.http.figures import Figures, Spread
from millstream.tui import text
from millstream.tui.benchmark import Plan, Result, Tally, run
from millstream.tui.client import Server
from millstream.tui.errors import ServerError
from millstream.tui.pages.page import Page
from millstream.tui.palette import BAD, GOOD
from millstream.tui.state import State
from millstream.tui.widgets.graph import gauge

_LIMITS = {"requests": (1, 1000), "concurrency": (1, 256), "max_tokens": (1, 4096)}
_LABELS = {"requests": "requests", "concurrency": "at a time", "max_tokens": "tokens each"}
_POLL_SECONDS = 0.2


class BenchPage(Page):
    """A form, the progress of the run, and its result."""

    NAME = "bench"
    BINDINGS = [
        Binding("r", "begin", "Run"),
        Binding("x", "stop", "Stop"),
        Binding("escape", "leave", "Leave field", show=False),
    ]
    DEFAULT_CSS = """
    BenchPage {
        #form { height: 1; padding: 0 1; margin: 1 0; }
        .field { width: 22; height: 1; }
        .field Label { margin-right: 1; }
        .field Input { width: 8; background: $panel; }
        #progress { height: auto; max-height: 3; padding: 0 1; }
        #result { height: 1fr; }
        #about { height: auto; padding: 0 1; color: $text-muted; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._work: Worker[None] | None = None
        self._tally = Tally()
        self._last: Result | None = None

    def body(self) -> ComposeResult:
        with Horizontal(id="form"):
            for name, value in (("requests", 16), ("concurrency", 4), ("max_tokens", 64)):
                with Horizontal(classes="field"):
                    yield Label(_LABELS[name])
                    yield Input(str(value), type="integer", max_length=4, id=name, compact=True)
        with Vertical():
            yield Static(id="progress")
            yield DataTable[Text](id="result", cursor_type="none")
        yield Static(
            Content(
                "As clients see it. Prompts are new each time; the model's own end is ignored. Compared with the last "
                "run of the same settings against this address."
            ),
            id="about",
        )

    def on_mount(self) -> None:
        table = self.query_one("#result", DataTable)
        for name, width in (("", 24), ("now", 12), ("last", 12), ("change", 10)):
            table.add_column(Text(name, justify="right" if name else "left"), width=width)
        self.query_one("#progress", Static).update(Content("r runs it against the default model."))
        table.focus()

    def on_input_submitted(self) -> None:
        """Enter in a field."""
        self.action_begin()

    def action_leave(self) -> None:
        """Out of the field, so that single keys work."""
        self.query_one("#result").focus()

    def action_stop(self) -> None:
        """End the run; nothing of it is kept."""
        if self._work is not None:
            self._work.cancel()

    def action_begin(self) -> None:
        """Run, if nothing runs."""
        if self._work is not None and not self._work.is_finished:
            return
        plan = self._plan()
        if plan is None:
            return
        self.query_one("#result").focus()
        self._last = self.top.results.last(self.top.server.url, plan)
        self._tally = Tally()
        self.present(None, self._last)
        self._work = self.work(self._measure(plan), group="bench", exclusive=True)

    def show(self, state: State) -> None:
        """Nothing here comes from snapshots."""

    def _plan(self) -> Plan | None:
        values = {}
        for name, (low, high) in _LIMITS.items():
            written = self.query_one(f"#{name}", Input).value
            if not written.isascii() or not written.isdigit() or not low <= int(written) <= high:
                self.app.notify(f"{_LABELS[name]}: {low} to {high}, please.", severity="error")
                self.query_one(f"#{name}").focus()
                return None
            values[name] = int(written)
        return Plan(
            model=self.top.state.default_model,
            requests=values["requests"],
            concurrency=values["concurrency"],
            max_tokens=values["max_tokens"],
        )

    async def _measure(self, plan: Plan) -> None:
        """Watch a thread that measures: drawing must not count as the server's latency."""
        runner = _Runner(self.top.server, plan, self._tally)
        progress = self.query_one("#progress", Static)
        runner.start()
        try:
            while runner.is_alive():
                progress.update(progress_content(plan, self._tally))
                await asyncio.sleep(_POLL_SECONDS)
        except asyncio.CancelledError:
            runner.stop()
            if not get_current_worker().is_cancelled or not progress.is_attached:
                raise
            progress.update(Content("stopped."))
            return
        progress.update(self._finish(runner))
        self.present(runner.result, self._last)

    def _finish(self, runner: _Runner) -> Content:
        if runner.problem:
            return Content.styled(f"✖ {runner.problem}", "$error")
        result = runner.result
        assert result is not None
        figures = result.figures
        said = f"{figures.requests - figures.failed} answers in {text.seconds(figures.seconds)}"
        if figures.failed:
            said += f", {figures.failed} failed: {text.line(figures.error or '', 200)}"
        with contextlib.suppress(OSError):
            self.top.results.add(self.top.server.url, result)
        return Content(said)

    def present(self, now: Result | None, last: Result | None) -> None:
        """Draw results; None where there is none yet."""
        table = self.query_one("#result", DataTable)
        table.clear()
        for row in result_rows(now, last):
            table.add_row(*row)


class _Runner(threading.Thread):
    """Measures in an event loop of its own."""

    def __init__(self, server: Server, plan: Plan, tally: Tally) -> None:
        super().__init__(name="bench", daemon=True)
        self._server, self._plan, self._tally = server, plan, tally
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Result] | None = None
        self._stopped = False
        self.result: Result | None = None
        self.problem = ""

    def run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._main())

    def stop(self) -> None:
        """Close its requests."""
        self._stopped = True
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(run(self._server.url, self._server.key, self._plan, self._tally))
        if self._stopped:
            self._task.cancel()
        try:
            self.result = await self._task
        except ServerError as error:
            self.problem = error.message


def progress_content(plan: Plan, tally: Tally) -> Content:
    """How far a run is."""
    ended = tally.done + tally.failed
    failed = f", {tally.failed} failed" if tally.failed else ""
    return Content.assemble(
        (gauge(ended / plan.requests, 30), "$primary"),
        f" {ended} of {plan.requests} answers, {text.count(tally.pieces)} pieces{failed}",
    )


def result_rows(now: Result | None, last: Result | None) -> list[list[Text]]:
    """A row for each figure, with what changed since the last run."""
    rows = []
    for name, read, write, more_is_better in _FIGURES:
        new, old = (None if result is None else read(result.figures) for result in (now, last))
        rows.append(
            [
                Text(name),
                Text(write(new), justify="right", style="bold"),
                Text(write(old), justify="right", style="dim"),
                change(new, old, more_is_better=more_is_better),
            ]
        )
    when = Text(text.moment(last.when) if last else "", justify="right", style="dim")
    return [
        *rows,
        [
            Text("at", style="dim"),
            Text(text.moment(now.when) if now else "", justify="right", style="dim"),
            when,
            Text(),
        ],
    ]


def change(new: float | None, old: float | None, *, more_is_better: bool) -> Text:
    """The relative difference; changes below two percent are noise and have no colour."""
    if new is None or old is None or old <= 0:
        return Text()
    share = new / old - 1
    better = (share > 0) == more_is_better
    style = "" if abs(share) < 0.02 else GOOD if better else BAD
    word = "" if abs(share) < 0.02 else " better" if better else " worse"
    return Text(f"{share:+.0%}{word}", justify="right", style=style)


_Read = Callable[[Figures], float | None]


def _part(spread: Callable[[Figures], Spread | None], part: str) -> _Read:
    """A percentile, in seconds."""

    def read(figures: Figures) -> float | None:
        found = spread(figures)
        return None if found is None else float(getattr(found, part))

    return read


_FIGURES: tuple[tuple[str, _Read, Callable[[float | None], str], bool], ...] = (
    ("output tok/s", lambda figures: figures.token_rate, text.rate, True),
    ("answers/s", lambda figures: figures.request_rate, text.rate, True),
    *(
        (f"{title} {part}", _part(spread, part), text.seconds, False)
        for title, spread in (
            ("first token", lambda figures: figures.first_token),
            ("between tokens", lambda figures: figures.inter_token),
            ("per token", lambda figures: figures.per_token),
        )
        for part in ("p50", "p90", "p99")
    ),
)
