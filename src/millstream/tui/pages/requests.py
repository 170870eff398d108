"""Requests: what is open, and what an operator may do about it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import DataTable, Static

from millstream.admin.views import RequestView
from millstream.tui.pages.page import Page
from millstream.tui.pages.request import RequestPage
from millstream.tui.requesting import RequestActions
from millstream.tui.state import State
from millstream.tui.widgets.live_table import SHOWN_ROWS
from millstream.tui.widgets.request_table import RequestTable


class RequestsPage(RequestActions, Page):
    """A live table; enter opens a request."""

    NAME = "requests"
    BINDINGS = [
        *RequestActions.KEYS,
        ("s", "sort", "Sort"),
    ]
    DEFAULT_CSS = """
    RequestsPage #summary { height: 1; padding: 0 1; color: $text-muted; }
    """

    def body(self) -> ComposeResult:
        yield Static(id="summary")
        yield RequestTable()

    def on_mount(self) -> None:
        self.query_one(RequestTable).focus()

    def show(self, state: State) -> None:
        table = self.query_one(RequestTable)
        table.show(state.requests, state.snapshot.time if state.snapshot else 0.0)
        self._summarise(state.requests, table.sorted_by)

    def _summarise(self, requests: list[RequestView], order: str) -> None:
        states: dict[str, int] = {}
        for request in requests:
            states[request.state] = states.get(request.state, 0) + 1
        parts = [f"{len(requests)} open"] + [f"{number} {state}" for state, number in sorted(states.items())]
        if len(requests) > SHOWN_ROWS:
            parts.append(f"the first {SHOWN_ROWS} are shown")
        self.query_one("#summary", Static).update(Content(" · ".join([*parts, order])), layout=False)

    def target(self) -> RequestView | None:
        return self.query_one(RequestTable).selected()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row under the cursor."""
        if event.row_key.value is not None:
            self.app.push_screen(RequestPage(event.row_key.value))

    def action_sort(self) -> None:
        """Another order."""
        self.query_one(RequestTable).sort_next()
        self.show(self.top.state)
