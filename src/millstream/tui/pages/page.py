"""What every page is made of."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Footer
from textual.worker import Worker

from millstream.tui.errors import ServerError
from millstream.tui.state import State
from millstream.tui.widgets.chrome import PageRow, StatusLine

if TYPE_CHECKING:
    from millstream.tui.app import TopApp


class Page(Screen[None]):
    """A screen under the row of pages. Subclasses yield their widgets in `body` and draw in `show`."""

    NAME = ""
    """Of `millstream.tui.widgets.chrome.PAGES`."""

    _ready = False

    def compose(self) -> ComposeResult:
        yield PageRow(self.NAME)
        yield StatusLine()
        yield from self.body()
        yield Footer(compact=True, show_command_palette=False)

    def body(self) -> ComposeResult:
        """What is particular to this page."""
        yield from ()

    @property
    def top(self) -> TopApp:
        """The app, with its type."""
        return cast("TopApp", self.app)

    def on_mount(self) -> None:
        # Textual calls this after the `on_mount` of the subclass, which made the tables.
        self._ready = True
        self.show_all(self.top.state)

    def on_screen_resume(self) -> None:
        self.show_all(self.top.state)

    def show_all(self, state: State) -> None:
        """Draw ``state``: the status line and the page."""
        if not self._ready:
            return
        self.query_one(StatusLine).show(state)
        self.show(state)

    def show(self, state: State) -> None:
        """Draw ``state``. Called after each change, and when the page comes to the front."""

    def do(self, work: Coroutine[Any, Any, None], done: str) -> None:
        """Ask the server for something in the background; tell how it went."""

        async def act() -> None:
            try:
                await work
            except ServerError as error:
                self.app.notify(error.message, title="Not done", severity="error", timeout=10, markup=False)
            else:
                self.app.notify(done, markup=False)

        self.work(act(), group="act")

    def work(self, task: Coroutine[Any, Any, None], *, group: str, exclusive: bool = False) -> Worker[None]:
        """Run something beside the page, until it ends or the page goes."""

        async def while_here() -> None:
            # A page that goes loses its widgets before its workers.
            with contextlib.suppress(NoMatches):
                await task

        return self.run_worker(while_here(), group=group, exclusive=exclusive)
