"""Overview: how fast, how full, and why something waits."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Grid, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Static

from millstream.admin.views import EngineView, KeyUsage, Percentiles
from millstream.tui import text
from millstream.tui.pages.page import Page
from millstream.tui.pages.request import RequestPage
from millstream.tui.state import State
from millstream.tui.widgets.graph import Graph, gauge
from millstream.tui.widgets.request_table import RequestTable

_GAUGE = 16
_KEY_COLUMNS = ("key", "open", "requests", "refused", "prompt", "cached", "tokens", "req left", "tok left")


class Tile(Vertical):
    """A number with its last minutes."""

    DEFAULT_CSS = """
    Tile { border: round $primary 50%; border-title-color: $text; height: 100%; padding: 0 1; }
    Tile Static { height: 1; }
    """

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id)
        self.border_title = title

    def compose(self) -> ComposeResult:
        yield Static(id="value")
        yield Graph()

    def show(self, value: str, note: str, series: Iterable[float | None]) -> None:
        """Draw the number, what else there is to say of it, and its series."""
        content = Content.assemble((value, "bold"), (note, "$text-muted"))
        self.query_one("#value", Static).update(content, layout=False)
        self.query_one(Graph).show(series)


class EnginePanel(Static):
    """One engine process."""

    DEFAULT_CSS = """
    EnginePanel {
        border: round $secondary 50%; border-title-color: $text; height: 6; padding: 0 1;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def show(self, engine: EngineView) -> None:
        """Draw it."""
        self.border_title = Content.styled(text.line(engine.model, 60), "bold")
        self.update(engine_content(engine), layout=False)


def engine_content(engine: EngineView) -> Content:
    """Four lines: the process, its work, its memory, what went wrong."""
    good = engine.status in ("ok", "ready")
    process = [
        f"{text.line(engine.isa, 12)} ×{text.count(engine.threads)}",
        f"pid {text.line(str(engine.pid), 10)}",
        text.size(engine.resident_bytes),
    ]
    status = text.line(engine.status, 20) + (f" ({text.line(engine.reason, 100)})" if engine.reason else "")
    waits = ", ".join(
        f"{text.line(reason, 20).replace('_', ' ')} {text.count(number)}"
        for reason, number in sorted(engine.waits.items(), key=lambda item: -item[1])
        if number
    )
    used = text.share(engine.kv_blocks_used, engine.kv_blocks_total)
    fullness = "$error" if used is not None and used > 0.95 else "$primary"
    return Content("\n").join(
        [
            Content.assemble(
                ("● " if good else "✖ ", "$success" if good else "$error"), status, " · ", " · ".join(process)
            ),
            Content.assemble(
                "running ",
                (text.count(engine.running), "bold"),
                "   waiting ",
                (text.count(engine.waiting), "bold $warning" if engine.waiting else "bold"),
                (f"   {waits}" if waits else "", "$warning"),
            ),
            Content.assemble(
                "KV cache ",
                (gauge(used, _GAUGE), fullness),
                f" {text.percent(used)} of {text.count(engine.kv_blocks_total)}   prefix hits ",
                (gauge(engine.prefix_hit_ratio, _GAUGE), "$primary"),
                f" {text.percent(engine.prefix_hit_ratio)}",
            ),
            Content.assemble(
                "restarts ",
                (text.count(engine.restarts), "bold $error" if engine.restarts else "bold"),
                f"   resumed {text.count(engine.resumed)}   preemptions {text.count(engine.preemptions)}",
            ),
        ]
    )


class OverviewPage(Page):
    """The first page."""

    NAME = "overview"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (36, "-tall")]
    DEFAULT_CSS = """
    OverviewPage {
        #tiles { grid-size: 2; grid-rows: 5; height: 10; }
        #engines { height: auto; }
        #requests, #keys { border: round $secondary 50%; border-title-color: $text; height: auto; max-height: 20; }
        #requests { display: none; }
        &.-tall #tiles { grid-rows: 9; height: 18; }
        &.-wide #tiles { grid-size: 4; grid-rows: 8; height: 8; }
        &.-wide.-tall #tiles { grid-rows: 14; height: 14; }
        &.-wide #engines { layout: grid; grid-size: 2; grid-rows: auto; }
        &.-tall #requests { display: block; }
    }
    """

    def body(self) -> ComposeResult:
        with VerticalScroll(id="scroll"):
            with Grid(id="tiles"):
                yield Tile("Output", id="decode")
                yield Tile("Prompts", id="prompt")
                yield Tile("Time to first token", id="first")
                yield Tile("Between tokens", id="inter")
            yield Vertical(id="engines")
            yield RequestTable(id="requests")
            yield DataTable(id="keys", cursor_type="none")

    def on_mount(self) -> None:
        self.query_one("#requests").border_title = "Open requests"
        keys = self.query_one("#keys", DataTable)
        keys.border_title = "Keys"
        keys.add_columns(*(Text(name) for name in _KEY_COLUMNS))

    def show(self, state: State) -> None:
        snapshot, history = state.snapshot, state.history
        if snapshot is None:
            return
        tiles = {tile.id: tile for tile in self.query(Tile)}
        tiles["decode"].show(text.rate(snapshot.decode_tokens_per_second), " tok/s", history.decode)
        tiles["prompt"].show(text.rate(snapshot.prompt_tokens_per_second), " tok/s", history.prompt)
        tiles["first"].show(*_latency(snapshot.first_token), history.first_token)
        tiles["inter"].show(*_latency(snapshot.inter_token), history.inter_token)
        self._show_engines(snapshot.engines)
        self.query_one(RequestTable).show(snapshot.requests, snapshot.time)
        self._show_keys(snapshot.keys)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open a request."""
        if isinstance(event.data_table, RequestTable) and event.row_key.value is not None:
            self.app.push_screen(RequestPage(event.row_key.value))

    def _show_engines(self, engines: list[EngineView]) -> None:
        room = self.query_one("#engines")
        panels = list(room.query(EnginePanel))
        for panel in panels[len(engines) :]:
            panel.remove()
        for _ in range(len(engines) - len(panels)):
            panel = EnginePanel()
            panels.append(panel)
            room.mount(panel)
        for panel, engine in zip(panels, engines, strict=False):
            panel.show(engine)

    def _show_keys(self, keys: list[KeyUsage]) -> None:
        table = self.query_one("#keys", DataTable)
        table.display = bool(keys)
        table.clear()
        for key in keys:
            numbers = (
                key.open_requests, key.requests, key.refused, key.prompt_tokens, key.cached_tokens,
                key.completion_tokens, key.requests_left, key.tokens_left,
            )  # fmt: skip
            cells = (text.cell("–" if number is None else text.count(number), 9, right=True) for number in numbers)
            table.add_row(text.cell(key.name, 16), *cells)


def _latency(measured: Percentiles) -> tuple[str, str]:
    return text.seconds(measured.p50), f"  p95 {text.seconds(measured.p95)}  p99 {text.seconds(measured.p99)}"
