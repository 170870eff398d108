"""Logs: what the server says, by level and by text."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, RichLog, Static

from millstream.admin.views import LogLine
from millstream.tui import text
from millstream.tui.logbook import KEPT_LINES
from millstream.tui.pages.page import Page
from millstream.tui.palette import BAD, BUSY, WAITS

LEVELS = ("debug", "info", "warning", "error")
_STYLES = {"debug": "dim", "info": BUSY, "warning": WAITS, "error": f"bold {BAD}"}
_DRAW_SECONDS = 0.2


class LogsPage(Page):
    """The newest lines at the bottom."""

    NAME = "logs"
    BINDINGS = [
        Binding("l", "level", "Level"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("f", "follow", "Follow"),
        Binding("escape", "leave", "Leave field", show=False),
    ]
    DEFAULT_CSS = """
    LogsPage {
        #what { height: 1; padding: 0 1; color: $text-muted; }
        #filter { border: none; height: 1; background: $panel; display: none; }
        #lines { height: 1fr; padding: 0 1; background: transparent; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._level = "info"
        self._needle = ""
        self._drawn = 0

    def body(self) -> ComposeResult:
        yield Static(id="what")
        yield Input(placeholder="text, logger or request id; escape ends it", id="filter")
        yield RichLog(id="lines", wrap=True, min_width=20, max_lines=KEPT_LINES)

    def on_mount(self) -> None:
        self.query_one("#lines").focus()
        self.set_interval(_DRAW_SECONDS, self._draw_new)
        self._draw_new()

    def on_resize(self) -> None:
        """Lines were wrapped for another width."""
        self._draw_all()

    def action_level(self) -> None:
        """From this level on."""
        self._level = LEVELS[(LEVELS.index(self._level) + 1) % len(LEVELS)]
        self._draw_all()

    def action_filter(self) -> None:
        """Write what lines must hold."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is written."""
        self._needle = event.value.casefold()
        self._draw_all()

    def on_input_submitted(self) -> None:
        """Keep the filter, leave the field."""
        self.query_one("#lines").focus()

    def action_leave(self) -> None:
        """End the filter."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self.query_one("#lines").focus()

    def action_follow(self) -> None:
        """Stay where one reads, or go along with the newest line."""
        log = self.query_one(RichLog)
        log.auto_scroll = not log.auto_scroll
        if log.auto_scroll:
            log.scroll_end(animate=False)
        self._draw_head()

    def _draw_all(self) -> None:
        self.query_one(RichLog).clear()
        self._drawn = 0
        self._draw_new()

    def _draw_new(self) -> None:
        """Draw what has come since, if somebody looks."""
        if not self.is_current:
            return
        book, log = self.top.book, self.query_one(RichLog)
        if not log.size.width:
            return
        for each in book.after(self._drawn):
            if wanted(each, self._level, self._needle):
                log.write(log_text(each))
        self._drawn = book.count
        self._draw_head()

    def _draw_head(self) -> None:
        log = self.query_one(RichLog)
        parts = [f"{self._level} and above", text.plural(self.top.book.count, "line")]
        if self._needle:
            parts.append(f"with {text.line(self._needle, 40)!r}")
        if not log.auto_scroll:
            parts.append("not following (f)")
        problem = self.top.book.problem
        self.query_one("#what", Static).update(
            Content.assemble(" · ".join(parts), (f" · ✖ {problem}" if problem else "", "$error")), layout=False
        )


def wanted(each: LogLine, level: str, needle: str) -> bool:
    """Whether a line passes the filters; ``needle`` is casefolded."""
    if LEVELS.index(each.level) < LEVELS.index(level):
        return False
    return not needle or any(needle in part.casefold() for part in (each.message, each.logger, each.request_id or ""))


def log_text(each: LogLine) -> Text:
    """A line for the screen; further lines of its message (a traceback's) are set in."""
    first, *more = text.plain(each.message).rstrip().split("\n")
    request = f" [{text.line(each.request_id, 40)}]" if each.request_id else ""
    shown = Text.assemble(
        (text.clock(each.time), "dim"),
        " ",
        (f"{each.level:<7}", _STYLES[each.level]),
        " ",
        (text.line(each.logger.removeprefix("millstream."), 40), "dim"),
        " ",
        first,
        (request, "dim"),
    )
    for line in more:
        shown.append(f"\n    {line}")
    return shown
