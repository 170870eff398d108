"""One request: what it asked for, what happened to it, and its answer as each surface writes it."""

from __future__ import annotations

import asyncio

from rich.cells import chop_cells
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import RichLog, Static

from millstream.admin.views import WIRE_SURFACES, RequestDetail, RequestView, TimelineEvent
from millstream.tui import text
from millstream.tui.errors import ServerError
from millstream.tui.pages.page import Page
from millstream.tui.palette import BAD, BUSY, HELD
from millstream.tui.requesting import RequestActions
from millstream.tui.widgets.request_table import state_of, surface_of, wait_of

_POLL_SECONDS = 1.0
_DRAW_SECONDS = 0.1
_KEPT_LINES = 5000
_LINE_CHARS = 2000
_ENDS = ("finished", "failed", "cancelled")
_FACTS = 40
_EVENTS = 200


class RequestPage(RequestActions, Page):
    """Follows one request until the user leaves."""

    NAME = "requests"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]
    BINDINGS = [("escape", "leave", "Back"), ("w", "next_surface", "Wire format"), *RequestActions.KEYS]
    DEFAULT_CSS = """
    RequestPage {
        #request { layout: vertical; height: 1fr; }
        #about { height: 11; }
        #facts { height: auto; max-height: 50%; }
        #timeline { height: 1fr; margin-top: 1; }
        #about, #wire { border: round $primary 50%; border-title-color: $text; padding: 0 1; }
        #wire { height: 1fr; }
        #surfaces { height: 1; link-style: none; link-background: transparent; link-color: $text-muted; }
        #lines { height: 1fr; background: transparent; }
        &.-wide #request { layout: horizontal; }
        &.-wide #about { width: 45%; height: 100%; }
        &.-wide #wire { width: 55%; height: 100%; }
    }
    """

    def __init__(self, request_id: str) -> None:
        super().__init__()
        self._request_id = request_id
        self._detail: RequestDetail | None = None
        self._surface = WIRE_SURFACES[0]

    def body(self) -> ComposeResult:
        with Container(id="request"):
            with Vertical(id="about"):
                yield Static("…", id="facts")
                with VerticalScroll(id="timeline"):
                    yield Static(id="events")
            with Vertical(id="wire"):
                yield Static(id="surfaces")
                yield RichLog(id="lines", wrap=True, min_width=20, max_lines=_KEPT_LINES)

    def on_mount(self) -> None:
        self.query_one("#about").border_title = Content.styled(text.line(self._request_id, 48), "bold")
        self.query_one("#wire").border_title = "On the wire"
        self.query_one("#lines").focus()
        self.work(self._follow(), group="detail")
        self._watch(self._surface)

    def target(self) -> RequestView | None:
        return self._detail.request if self._detail and self._detail.request.state != "ended" else None

    def action_leave(self) -> None:
        """Back to the table."""
        self.app.pop_screen()

    def action_next_surface(self) -> None:
        """The next wire format."""
        at = WIRE_SURFACES.index(self._surface)
        self._watch(WIRE_SURFACES[(at + 1) % len(WIRE_SURFACES)])

    def action_surface(self, surface: str) -> None:
        """A wire format that was clicked on."""
        if surface in WIRE_SURFACES:
            self._watch(surface)

    def _watch(self, surface: str) -> None:
        self._surface = surface
        parts = (
            f"[reverse bold] {name} [/]" if name == surface else f"[@click=screen.surface('{name}')] {name} [/]"
            for name in WIRE_SURFACES
        )
        self.query_one("#surfaces", Static).update(Content.from_markup("".join(parts)))
        self.query_one(RichLog).clear()
        self.work(self._read_wire(surface), group="wire", exclusive=True)

    async def _follow(self) -> None:
        """Poll what is known of the request; once it has ended nothing changes any more."""
        while True:
            try:
                self._detail = await self.top.server.request(self._request_id)
            except ServerError as error:
                if self._detail is None:
                    self.query_one("#facts", Static).update(Content(error.message))
                if error.status == 404:
                    return
            else:
                self._draw(self._detail)
                if self._detail.request.state == "ended":
                    return
            await asyncio.sleep(_POLL_SECONDS)

    def _draw(self, detail: RequestDetail) -> None:
        self.query_one("#facts", Static).update(facts_content(detail))
        self.query_one("#events", Static).update(timeline_content(detail.timeline))
        # The newest event is the one that is looked for.
        self.query_one("#timeline").scroll_end(animate=False)

    async def _read_wire(self, surface: str) -> None:
        """Show the stream as it comes; lines are drawn in batches, as one token makes two of them."""
        log = self.query_one(RichLog)
        waiting: list[str] = []

        def draw() -> None:
            for each in waiting:
                if each.strip("\r"):
                    log.write(wire_line(each, log.scrollable_content_region.width))
            waiting.clear()

        timer = self.set_interval(_DRAW_SECONDS, draw)
        try:
            rest = ""
            async for piece in self.top.server.wire(self._request_id, surface):
                *lines, rest = (rest + piece).split("\n")
                rest = rest[: _LINE_CHARS + 1]
                waiting.extend(lines)
            waiting.extend([rest] if rest else [])
            draw()
            log.write(Text("end of the stream", style="dim italic"))
        except ServerError as error:
            draw()
            log.write(Text(error.message, style=f"bold {BAD}"))
        finally:
            timer.stop()


def wire_line(raw: str, width: int) -> Text:
    """A line of a stream, its field name apart from what it carries, folded where the room ends."""
    shown = "\n".join(chop_cells(text.line(raw.rstrip("\r"), _LINE_CHARS), max(1, width)))
    name, colon, value = shown.partition(":")
    if not colon:
        return Text(shown)
    if name not in ("event", "data", "id", "retry"):
        return Text(shown, style="dim")
    return Text.assemble((name + colon, BUSY if name == "data" else f"bold {HELD}"), value)


def facts_content(detail: RequestDetail) -> Content:
    """Two lines of the request's numbers, then what it asked for."""
    request = detail.request
    state = state_of(request) + (f" ({text.line(wait_of(request), 24)})" if wait_of(request) else "")
    ended = next((event for event in detail.timeline if event.kind in _ENDS), None)
    head = [text.line(part, 40) for part in (surface_of(request), request.model, request.key) if part]
    numbers = [
        f"{text.count(request.prompt_tokens)} prompt tokens, {text.count(request.cached_tokens)} of them cached",
        f"{text.count(request.completion_tokens)} new at {text.rate(request.tokens_per_second)} tok/s",
        f"TTFT {text.seconds(request.first_token_seconds)}",
    ]
    parts: list[Content] = [
        Content.assemble(
            (ended.kind if ended else state, "bold $primary"), f" · {' · '.join(head)} · priority {request.priority}"
        ),
        Content(" · ".join(numbers)),
    ]
    asked = list(detail.parameters.items())[:_FACTS]
    if asked:
        shown = "  ".join(f"{text.line(name, 30)}={text.line(value, 60)}" for name, value in asked)
        parts.append(Content.styled(shown, "$text-muted"))
    return Content("\n").join(parts)


def timeline_content(events: list[TimelineEvent]) -> Content:
    """One line for each event, the newest of very many."""
    lines = [
        Content.assemble(
            (f"{min(event.seconds, 1e6):9.3f} s  ", "$text-muted"),
            (f"{text.line(event.kind, 20):<16} ", "bold"),
            text.line(event.note, 200),
        )
        for event in events[-_EVENTS:]
    ]
    return Content("\n").join(lines)
