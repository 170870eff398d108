"""A table of things that change: rows keep their place and the cursor keeps its thing while numbers change and others
come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from rich.text import Text
from textual.events import Resize
from textual.widgets import DataTable

from millstream.tui import text

SHOWN_ROWS = 500
WIDE = 120

T = TypeVar("T")


class Column(NamedTuple, Generic[T]):
    """``write``: the cell of a thing, given the server's time; the table cuts it. ``wide``: only where there is room.
    ``grows``: takes the room that is left, up to so many characters more. ``right``: numbers."""

    name: str
    width: int
    write: Callable[[T, float], str]
    wide: bool = False
    grows: int = 0
    right: bool = False
    style: Callable[[T], str] = lambda _: ""


def widths(columns: Sequence[Column[T]], room: int) -> dict[str, int]:
    """Columns that fit into ``room`` characters, and how wide each is; what is left goes to those that grow, most
    first."""
    shown = [column for column in columns if room >= WIDE or not column.wide]
    left = room - sum(column.width + 2 for column in shown) - 1
    found = {column.name: column.width for column in shown}
    for column in sorted(shown, key=lambda column: -column.grows):
        more = max(0, min(column.grows, left))
        found[column.name] += more
        left -= more
    return found


class LiveTable(DataTable[Text], Generic[T]):
    """`show` what the server tells. ``name_of``: what tells one thing from another, and the key of its row."""

    DEFAULT_CSS = """
    LiveTable { height: 1fr; }
    """

    def __init__(self, columns: Sequence[Column[T]], name_of: Callable[[T], str], *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False)
        self._all_columns = columns
        self._name_of = name_of
        self._widths: dict[str, int] = {}
        self._things: list[T] = []
        self._now = 0.0
        self._cells: dict[str, list[Text]] = {}
        self._order: list[str] = []

    def arranged(self, things: list[T]) -> list[T]:
        """The order of the rows: as told, unless a subclass sorts."""
        return things

    def on_resize(self, event: Resize) -> None:
        """Take up columns, or leave some out."""
        found = widths(self._all_columns, event.size.width)
        if found != self._widths:
            place = self.cursor_row
            self._widths = found
            self.clear(columns=True)
            for column in self._shown_columns():
                title = Text(column.name, justify="right" if column.right else "left")
                self.add_column(title, width=found[column.name], key=column.name)
            order, self._cells, self._order = self._order, {}, []
            self._draw(order[place] if 0 <= place < len(order) else None)

    def show(self, things: list[T], now: float = 0.0) -> None:
        """Draw these; ``now`` is the server's time."""
        self._things, self._now = things, now
        if self._widths:
            self._draw()

    def selected(self) -> T | None:
        """What is under the cursor, as last told."""
        if not 0 <= self.cursor_row < len(self._order):
            return None
        wanted = self._order[self.cursor_row]
        return next((thing for thing in self._things if self._name_of(thing) == wanted), None)

    def _shown_columns(self) -> list[Column[T]]:
        return [column for column in self._all_columns if column.name in self._widths]

    def _row(self, thing: T) -> list[Text]:
        return [
            text.cell(
                column.write(thing, self._now), self._widths[column.name], column.style(thing), right=column.right
            )
            for column in self._shown_columns()
        ]

    def _draw(self, chosen: str | None = None) -> None:
        """``chosen``: what the cursor goes to; if not given it stays where it is."""
        columns = self._shown_columns()
        rows = {self._name_of(thing): self._row(thing) for thing in self.arranged(self._things)[:SHOWN_ROWS]}
        if list(rows) != self._order:
            self._rebuild(rows, chosen)
            return
        for name, cells in rows.items():
            for column, cell, old in zip(columns, cells, self._cells[name], strict=True):
                if cell != old or cell.style != old.style:
                    self.update_cell(name, column.name, cell)
        self._cells = rows

    def _rebuild(self, rows: dict[str, list[Text]], chosen: str | None) -> None:
        """Draw all anew with the cursor on the thing that it was on, or where that one was."""
        place = max(0, self.cursor_row)
        if chosen is None and place < len(self._order):
            chosen = self._order[place]
        order = list(rows)
        top = self.scroll_offset.y
        self.clear()
        for name, cells in rows.items():
            self.add_row(*cells, key=name)
        self._order, self._cells = order, rows
        row = order.index(chosen) if chosen in rows else min(place, len(order) - 1)
        if row >= 0:
            self.move_cursor(row=row, scroll=False)
            self.scroll_to(y=top, animate=False)
