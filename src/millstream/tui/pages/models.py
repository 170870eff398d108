"""Models: what is served, what is on disk, what can be fetched."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from millstream.admin.views import ModelView
from millstream.tui import text
from millstream.tui.pages.page import Page
from millstream.tui.palette import BAD, BUSY, GOOD
from millstream.tui.state import State
from millstream.tui.widgets.dialogs import Confirm
from millstream.tui.widgets.graph import gauge
from millstream.tui.widgets.live_table import Column, LiveTable

_STATE_STYLE = {"loaded": GOOD, "loading": BUSY, "pulling": BUSY, "failed": BAD}


def _pulled(model: ModelView) -> str:
    if model.state != "pulling":
        return ""
    return text.percent(text.share(model.fetched_bytes, model.fetch_bytes))


COLUMNS: tuple[Column[ModelView], ...] = (
    Column("model", 28, lambda m, _: ("★ " if m.default else "  ") + m.name, grows=40),
    Column("state", 9, lambda m, _: m.state.replace("_", " "), style=lambda m: _STATE_STYLE.get(m.state, "")),
    Column("size", 8, lambda m, _: text.size(m.file_bytes or m.fetch_bytes), right=True),
    Column("context", 7, lambda m, _: text.count(m.context_length) if m.context_length else "–", right=True),
    Column("open", 5, lambda m, _: text.count(m.open_requests), right=True),
    Column("pull", 5, lambda m, _: _pulled(m), right=True, style=lambda _: BUSY),
)


class ModelsPage(Page):
    """A live table, and more of the model under the cursor."""

    NAME = "models"
    BINDINGS = [
        Binding("l", "load", "Load"),
        Binding("u", "unload", "Unload"),
        Binding("p", "pull", "Pull"),
        Binding("x", "cancel_pull", "Stop pull"),
    ]
    DEFAULT_CSS = """
    ModelsPage #model {
        height: 7; border: round $primary 50%; border-title-color: $text; padding: 0 1;
    }
    """

    def body(self) -> ComposeResult:
        yield LiveTable[ModelView](COLUMNS, lambda model: model.name, id="models")
        yield Static(id="model")

    def on_mount(self) -> None:
        self._table.focus()

    def show(self, state: State) -> None:
        self._table.show(state.models)
        self._draw_model()

    @property
    def _table(self) -> LiveTable[ModelView]:
        table: LiveTable[ModelView] = self.query_one("#models", LiveTable)
        return table

    def on_data_table_row_highlighted(self) -> None:
        """The cursor moved."""
        self._draw_model()

    def _draw_model(self) -> None:
        panel = self.query_one("#model", Static)
        model = self._selected()
        panel.border_title = Content.styled(text.line(model.name, 60), "bold") if model else "No model"
        panel.update(model_content(model) if model else Content(), layout=False)

    def _selected(self) -> ModelView | None:
        return self._table.selected()

    def action_load(self) -> None:
        """Load it, if it is here."""
        if model := self._selected():
            if model.state == "available":
                self.app.notify(f"{text.line(model.name, 60)} has to be pulled first (p).", markup=False)
            else:
                self._confirm(model, "load", "Load", f"It takes about {text.size(model.file_bytes)} of memory.")

    def action_unload(self) -> None:
        """Unload it after its open requests."""
        if model := self._selected():
            one = model.open_requests == 1
            count = text.plural(model.open_requests, "open request")
            note = f"{count} {'is' if one else 'are'} finished first; new ones are refused."
            self._confirm(model, "unload", "Unload", note)

    def action_pull(self) -> None:
        """Fetch it."""
        if model := self._selected():
            note = f"{text.size(model.fetch_bytes)} to fetch. {text.line(model.license, 60)}"
            self._confirm(model, "pull", "Pull", note)

    def action_cancel_pull(self) -> None:
        """Stop fetching it."""
        if model := self._selected():
            self._confirm(model, "pull/cancel", "Stop the pull of", "What has come so far may have to come again.")

    def _confirm(self, model: ModelView, verb: str, title: str, note: str) -> None:
        name = text.line(model.name, 60)

        def answered(yes: bool | None) -> None:
            if yes:
                self.do(self.top.server.model_action(verb, model.name), f"{title} {name}: under way.")

        self.app.push_screen(Confirm(f"{title} {name}?", note, yes=title.split()[0]), answered)


def model_content(model: ModelView) -> Content:
    """All that is told of a model."""
    facts = [text.line(part, 80) for part in (model.title, model.license) if part]
    if model.kv_tokens:
        kv_type = " in int8" if model.kv_type == "int8" else ""
        facts.append(f"KV cache for {text.count(model.kv_tokens)} tokens{kv_type}")
    if model.activations == "int8":
        facts.append("activations in int8")
    if model.default:
        facts.append("the default model")
    parts: list[Content] = [Content(" · ".join(facts))]
    if model.state == "pulling":
        share = text.share(model.fetched_bytes, model.fetch_bytes)
        of = f"{text.size(model.fetched_bytes)} of {text.size(model.fetch_bytes)} to fetch"
        parts.append(Content.assemble((gauge(share, 40), "$primary"), f" {text.percent(share)}  {of}"))
    if model.error:
        parts.append(Content.styled(text.line(model.error, 400), "$error"))
    return Content("\n").join(parts)
