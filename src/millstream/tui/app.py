"""The app: its pages, and the state that they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.screen import Screen

from millstream.tui.client import Server
from millstream.tui.feed import PATIENCE_SECONDS, Feed
from millstream.tui.logbook import LogBook, LogSource, follow
from millstream.tui.pages.bench import BenchPage
from millstream.tui.pages.chat import ChatPage
from millstream.tui.pages.help import HelpPage
from millstream.tui.pages.logs import LogsPage
from millstream.tui.pages.models import ModelsPage
from millstream.tui.pages.overview import OverviewPage
from millstream.tui.pages.page import Page
from millstream.tui.pages.requests import RequestsPage
from millstream.tui.palette import THEME
from millstream.tui.results import Results
from millstream.tui.state import State
from millstream.tui.widgets.chrome import PAGES

_DRAW_SECONDS = 0.05


class TopApp(App[None]):
    """Shows one server, anew every ``interval`` seconds; one that is ``patience`` seconds late is called silent.
    ``logs``: where log lines come from, if not from the server's own API. ``until``: returns when there is nothing more
    to show, as the server was started for this app and has ended."""

    TITLE = "millstream top"
    MODES = {
        "overview": OverviewPage,
        "requests": RequestsPage,
        "models": ModelsPage,
        "chat": ChatPage,
        "bench": BenchPage,
        "logs": LogsPage,
        "help": HelpPage,
    }
    DEFAULT_MODE = "overview"
    CSS = """
    * { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }
    DataTable { background: transparent; }
    DataTable > .datatable--header { background: $panel; }
    """
    BINDINGS = [
        *(Binding(f"{at},f{at}", f"page('{name}')", name.title(), show=False) for at, name in enumerate(PAGES, 1)),
        Binding("ctrl+r", "retry", "Reconnect", show=False),
        Binding("question_mark", "page('help')", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(
        self,
        server: Server,
        *,
        interval: float = 1.0,
        patience: float = PATIENCE_SECONDS,
        logs: LogSource | None = None,
        until: Callable[[], Awaitable[None]] | None = None,
        results: Results | None = None,
    ) -> None:
        super().__init__()
        self.register_theme(THEME)
        self.theme = THEME.name
        self.server = server
        self.state = State(server.url, starting=until is not None)
        self.book = LogBook()
        self.results = results or Results()
        self._drawing = False
        self._feed = Feed(server, self.state, interval, patience, self._changed)
        self._logs = logs or server.logs
        self._until = until

    def on_mount(self) -> None:
        self.run_worker(self._feed.run(), group="feed")
        self.run_worker(follow(self._logs, self.book), group="logs")
        if self._until is not None:
            self.run_worker(self._leave_after(self._until), group="until")

    async def on_unmount(self) -> None:
        await self.server.aclose()

    def action_page(self, name: str) -> None:
        """Go to a page; from a dialog or an opened request back to it."""
        if name not in PAGES:
            return
        if name != self.current_mode:
            self.switch_mode(name)
        elif len(self.screen_stack) > 1 and isinstance(self.screen, Page):
            self.pop_screen()

    def action_retry(self) -> None:
        """Don't wait for the next attempt."""
        self._feed.retry_now()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The pages, and what every Textual app offers."""
        for name in PAGES:
            yield SystemCommand(name.title(), f"Go to {name}", lambda name=name: self.action_page(name))
        yield from super().get_system_commands(screen)

    async def _leave_after(self, until: Callable[[], Awaitable[None]]) -> None:
        await until()
        self.exit()

    def _changed(self) -> None:
        """The state has changed: draw it soon, and once for all changes until then."""
        if not self._drawing:
            self._drawing = True
            self.set_timer(_DRAW_SECONDS, self._draw)

    def _draw(self) -> None:
        """Draw where somebody sees it."""
        self._drawing = False
        for screen in self.screen_stack:
            if isinstance(screen, Page) and screen.is_mounted:
                screen.show_all(self.state)
