"""Open requests, one a row; rows keep their place and the cursor keeps its row while numbers change."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rich.text import Text
from textual.binding import Binding
from textual.events import Resize
from textual.widgets import DataTable

from millstream.admin.views import RequestView
from millstream.tui import text
from millstream.tui.palette import BUSY, GOOD, HELD, WAITS

SHOWN_ROWS = 500
WIDE = 120
_STATE_STYLE = {"decode": GOOD, "prefill": BUSY, "queued": WAITS, "paused": HELD}


class Column(NamedTuple):
    """``write``: the cell of a request, given the server's time; the table cuts it. ``wide``: only where there is room.
    ``grows``: takes the room that is left, up to so many characters more. ``right``: numbers."""

    name: str
    width: int
    write: Callable[[RequestView, float], str]
    wide: bool = False
    grows: int = 0
    right: bool = False
    style: Callable[[RequestView], str] = lambda _: ""


def state_of(request: RequestView) -> str:
    """The state in a word; ``held`` if an operator has paused it."""
    return "held" if request.held else request.state


def wait_of(request: RequestView) -> str:
    """Why it does not advance, in words, where the state does not say it; how far a prompt is that does."""
    if request.state == "prefill" and not request.wait_reason and 0 < request.prompt_done < request.prompt_tokens:
        return f"{100 * request.prompt_done // request.prompt_tokens}% read"
    reason = (request.wait_reason or "").replace("_", " ")
    return "" if reason == state_of(request) else reason


def surface_of(request: RequestView) -> str:
    """The wire format, as the operator's paths call it."""
    return request.surface.removesuffix("_completions").replace("_", " ")


COLUMNS = (
    Column("id", 14, lambda r, _: r.id, wide=True, grows=26),
    Column("key", 8, lambda r, _: r.key or "–", grows=12),
    Column("surface", 11, lambda r, _: surface_of(r)),
    Column("model", 13, lambda r, _: r.model, grows=26),
    Column("state", 7, lambda r, _: state_of(r), style=lambda r: _STATE_STYLE.get(r.state, "")),
    Column("waits for", 13, lambda r, _: wait_of(r), style=lambda _: WAITS),
    Column("prio", 4, lambda r, _: text.count(r.priority), wide=True, right=True),
    Column("age", 7, lambda r, now: text.age(now - r.began), wide=True, right=True),
    Column("TTFT", 8, lambda r, _: text.seconds(r.first_token_seconds), wide=True, right=True),
    Column("prompt", 7, lambda r, _: text.count(r.prompt_tokens), wide=True, right=True),
    Column("cached", 7, lambda r, _: text.count(r.cached_tokens), wide=True, right=True),
    Column("tokens", 6, lambda r, _: text.count(r.completion_tokens), right=True),
    Column("tok/s", 6, lambda r, _: text.rate(r.tokens_per_second), right=True),
)


def widths(room: int) -> dict[str, int]:
    """Columns that fit into ``room`` characters, and how wide each is; what is left goes to those that grow, most
    first."""
    shown = [column for column in COLUMNS if room >= WIDE or not column.wide]
    left = room - sum(column.width + 2 for column in shown) - 1
    found = {column.name: column.width for column in shown}
    for column in sorted(shown, key=lambda column: -column.grows):
        more = max(0, min(column.grows, left))
        found[column.name] += more
        left -= more
    return found


SORTS: dict[str, Callable[[RequestView], tuple[float, str]]] = {
    "oldest first": lambda r: (r.began, r.id),
    "newest first": lambda r: (-r.began, r.id),
    "most tokens": lambda r: (-r.completion_tokens, r.id),
    "slowest": lambda r: (r.tokens_per_second or 0.0, r.id),
}


class RequestTable(DataTable[Text]):
    """`show` what the server tells; a selected row's key is the request's id."""

    DEFAULT_CSS = """
    RequestTable { height: 1fr; }
    """
    BINDINGS = [Binding("enter", "select_cursor", "Open")]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False)
        self.sorted_by = next(iter(SORTS))
        self._widths: dict[str, int] = {}
        self._requests: list[RequestView] = []
        self._now = 0.0
        self._cells: dict[str, list[Text]] = {}
        self._order: list[str] = []

    def on_resize(self, event: Resize) -> None:
        """Take up columns, or leave some out."""
        found = widths(event.size.width)
        if found != self._widths:
            self._widths = found
            self.clear(columns=True)
            for column in self._shown_columns():
                title = Text(column.name, justify="right" if column.right else "left")
                self.add_column(title, width=found[column.name], key=column.name)
            self._cells, self._order = {}, []
            self._draw()

    def show(self, requests: list[RequestView], now: float) -> None:
        """Draw these; ``now`` is the server's time."""
        self._requests, self._now = requests, now
        if self._widths:
            self._draw()

    def selected(self) -> RequestView | None:
        """The request under the cursor, as last told."""
        if not 0 <= self.cursor_row < len(self._order):
            return None
        wanted = self._order[self.cursor_row]
        return next((request for request in self._requests if request.id == wanted), None)

    def sort_next(self) -> str:
        """Sort by the next order; its name."""
        names = list(SORTS)
        self.sorted_by = names[(names.index(self.sorted_by) + 1) % len(names)]
        self._draw()
        return self.sorted_by

    def _shown_columns(self) -> list[Column]:
        return [column for column in COLUMNS if column.name in self._widths]

    def _row(self, request: RequestView) -> list[Text]:
        return [
            text.cell(
                column.write(request, self._now),
                self._widths[column.name],
                column.style(request),
                right=column.right,
            )
            for column in self._shown_columns()
        ]

    def _draw(self) -> None:
        ordered = sorted(self._requests, key=SORTS[self.sorted_by])[:SHOWN_ROWS]
        columns = self._shown_columns()
        rows = {request.id: self._row(request) for request in ordered}
        if list(rows) != self._order:
            self._rebuild(rows)
            return
        for request_id, cells in rows.items():
            for column, cell, old in zip(columns, cells, self._cells[request_id], strict=True):
                if cell != old or cell.style != old.style:
                    self.update_cell(request_id, column.name, cell)
        self._cells = rows

    def _rebuild(self, rows: dict[str, list[Text]]) -> None:
        """Draw all anew with the cursor on the request that it was on, or where that one was."""
        place = max(0, self.cursor_row)
        chosen = self._order[place] if place < len(self._order) else None
        order = list(rows)
        top = self.scroll_offset.y
        self.clear()
        for request_id, cells in rows.items():
            self.add_row(*cells, key=request_id)
        self._order, self._cells = order, rows
        row = order.index(chosen) if chosen in rows else min(place, len(order) - 1)
        if row >= 0:
            self.move_cursor(row=row, scroll=False)
            self.scroll_to(y=top, animate=False)
