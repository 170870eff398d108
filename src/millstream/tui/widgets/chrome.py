"""What stands around every page: the row of pages and the line about the connection."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from millstream.tui import text
from millstream.tui.state import State

PAGES = ("overview", "requests", "models", "chat", "bench", "logs", "help")
"""In the order of their number keys."""

_STATUS_STYLE = {"ok": "$success", "ready": "$success"}


class PageRow(Static):
    """The pages with their keys; a click goes to one."""

    DEFAULT_CSS = """
    PageRow {
        height: 1; background: $panel; padding: 0 1; width: 100%;
        link-background: transparent; link-color: $text-muted; link-style: none;
        link-background-hover: $primary; link-color-hover: $background; link-style-hover: none;
    }
    """

    def __init__(self, current: str) -> None:
        parts = ["[bold $primary]millstream[/]"]
        for number, page in enumerate(PAGES, 1):
            label = f"{number} {page.title()}"
            shown = f"[reverse bold] {label} [/]" if page == current else f" {label} "
            parts.append(f"[@click=app.page('{page}')]{shown}[/]")
        super().__init__(Content.from_markup("".join(parts)))


class StatusLine(Static):
    """Says how the connection is and, if it is not, why not."""

    DEFAULT_CSS = """
    StatusLine {
        height: 1; padding: 0 1; width: 100%; background: $surface; color: $text-muted;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    StatusLine.-lost {
        height: auto; max-height: 3; background: $error 30%; color: $text; text-style: bold; text-wrap: wrap;
    }
    """

    def show(self, state: State) -> None:
        """Draw the connection of ``state``."""
        lost = (state.link.state == "lost" or state.link.silent_seconds > 0) and not state.starting
        moved = lost or self.has_class("-lost")  # only a problem may need more than one line
        self.set_class(lost, "-lost")
        self.update(status_content(state), layout=moved)


def status_content(state: State) -> Content:
    """One line; longer only when a problem is."""
    link, snapshot, url = state.link, state.snapshot, text.line(state.url, 60)
    if state.starting:
        return Content(f"○ the server is starting on {url}; its words are under Logs (6)")
    if link.state == "connecting":
        return Content(f"○ connecting to {url}")
    if link.state == "lost":
        when = f"in {link.retry_seconds} s (ctrl+r: now)." if link.retry_seconds > 0 else "…"
        return Content(f"✖ {url}: {link.problem} Trying again {when}")
    if link.silent_seconds:
        return Content(f"✖ {url}: no news for {link.silent_seconds} s; what is shown is old.")
    assert snapshot is not None
    status = text.line(snapshot.status, 16)
    if snapshot.reason:
        status += f" ({text.line(snapshot.reason, 80)})"
    facts = (url, f"v{text.line(snapshot.version, 16)}", f"up {text.age(snapshot.uptime_seconds)}")
    style = _STATUS_STYLE.get(snapshot.status, "$warning")
    return Content.assemble(("● ", style), (status, style), Content(" · " + " · ".join(facts)))
