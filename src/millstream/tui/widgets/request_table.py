"""Open requests, one a row."""

from __future__ import annotations

from collections.abc import Callable

from textual.binding import Binding

from millstream.admin.views import RequestView
from millstream.tui import text
from millstream.tui.palette import BUSY, GOOD, HELD, WAITS
from millstream.tui.widgets.live_table import Column, LiveTable

_STATE_STYLE = {"decode": GOOD, "prefill": BUSY, "queued": WAITS, "paused": HELD}


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


COLUMNS: tuple[Column[RequestView], ...] = (
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

SORTS: dict[str, Callable[[RequestView], tuple[float, str]]] = {
    "oldest first": lambda r: (r.began, r.id),
    "newest first": lambda r: (-r.began, r.id),
    "most tokens": lambda r: (-r.completion_tokens, r.id),
    "slowest": lambda r: (r.tokens_per_second or 0.0, r.id),
}


class RequestTable(LiveTable[RequestView]):
    """A selected row's key is the request's id."""

    BINDINGS = [Binding("enter", "select_cursor", "Open")]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(COLUMNS, lambda request: request.id, id=id)
        self.sorted_by = next(iter(SORTS))

    def arranged(self, things: list[RequestView]) -> list[RequestView]:
        return sorted(things, key=SORTS[self.sorted_by])

    def sort_next(self) -> str:
        """Sort by the next order; its name."""
        names = list(SORTS)
        self.sorted_by = names[(names.index(self.sorted_by) + 1) % len(names)]
        self._draw()
        return self.sorted_by
