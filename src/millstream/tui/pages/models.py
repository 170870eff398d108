"""Models: what is served, what is on disk, what can be fetched."""

from __future__ import annotations

import asyncio

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import DataTable, Static

from millstream.admin.views import ModelView
from millstream.tui import text
from millstream.tui.errors import ServerError
from millstream.tui.pages.page import Page
from millstream.tui.palette import BAD, BUSY, GOOD
from millstream.tui.state import State
from millstream.tui.widgets.dialogs import Confirm
from millstream.tui.widgets.graph import gauge

_POLL_SECONDS = 1.0
_SHOWN = 500
_STATE_STYLE = {"loaded": GOOD, "loading": BUSY, "pulling": BUSY, "failed": BAD}
_COLUMNS = (("model", 28), ("state", 9), ("size", 8), ("context", 7), ("open", 5), ("pull", 5))


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
    ModelsPage DataTable { height: 1fr; }
    ModelsPage #model {
        height: 7; border: round $primary 50%; border-title-color: $text; padding: 0 1;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._models: list[ModelView] = []
        self._problem = ""

    def body(self) -> ComposeResult:
        yield DataTable[Text](cursor_type="row")
        yield Static(id="model")

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for name, width in _COLUMNS:
            table.add_column(Text(name, justify="right" if width < 9 else "left"), width=width, key=name)
        table.focus()
        self.work(self._follow(), group="models")

    def show(self, state: State) -> None:
        # Progress comes with every snapshot, the whole catalogue only when it is asked for.
        fresh = {model.name: model for model in state.models}
        self._draw([fresh.pop(model.name, model) for model in self._models] + list(fresh.values()))

    async def _follow(self) -> None:
        while True:
            if self.is_current:
                await self._ask()
            await asyncio.sleep(_POLL_SECONDS)

    async def _ask(self) -> None:
        try:
            models = await self.top.server.models()
        except ServerError as error:
            self._problem = error.message
            self._draw_model()
        else:
            self._problem = ""
            self._draw(models)

    def _draw(self, models: list[ModelView]) -> None:
        table = self.query_one(DataTable)
        place = table.cursor_row
        same = [model.name for model in models] == [model.name for model in self._models] and table.row_count
        self._models = models
        if same:
            for row, model in enumerate(models[:_SHOWN]):
                for column, cell in enumerate(model_cells(model)):
                    if table.get_cell_at((row, column)) != cell:  # type: ignore[arg-type]
                        table.update_cell_at((row, column), cell)  # type: ignore[arg-type]
        else:
            table.clear()
            for model in models[:_SHOWN]:
                table.add_row(*model_cells(model))
            table.move_cursor(row=max(0, min(place, len(models) - 1)))
        self._draw_model()

    def on_data_table_row_highlighted(self) -> None:
        """The cursor moved."""
        self._draw_model()

    def _draw_model(self) -> None:
        panel = self.query_one("#model", Static)
        model = self._selected()
        panel.border_title = Content.styled(text.line(model.name, 60), "bold") if model else "No model"
        panel.update(model_content(model) if model else Content(self._problem), layout=False)

    def _selected(self) -> ModelView | None:
        row = self.query_one(DataTable).cursor_row
        return self._models[row] if 0 <= row < len(self._models) else None

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
            note = f"{text.count(model.open_requests)} open requests are finished first; new ones are refused."
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


def model_cells(model: ModelView) -> list[Text]:
    """A row."""
    pulled = text.share(model.fetched_bytes, model.fetch_bytes) if model.state == "pulling" else None
    return [
        text.cell(("★ " if model.default else "  ") + model.name, 28),
        text.cell(model.state.replace("_", " "), 9, _STATE_STYLE.get(model.state, "")),
        text.cell(text.size(model.file_bytes or model.fetch_bytes), 8, right=True),
        text.cell(text.count(model.context_length) if model.context_length else "–", 7, right=True),
        text.cell(text.count(model.open_requests), 5, right=True),
        text.cell(text.percent(pulled) if pulled is not None else "", 5, BUSY, right=True),
    ]


def model_content(model: ModelView) -> Content:
    """All that is told of a model."""
    facts = [text.line(part, 80) for part in (model.title, model.license) if part]
    if model.kv_tokens:
        kv_type = " in int8" if model.kv_type == "int8" else ""
        facts.append(f"KV cache for {text.count(model.kv_tokens)} tokens{kv_type}")
    if model.activations == "int8":
        facts.append("activations in int8")
    if model.default:
        facts.append("answers requests that name no model")
    parts: list[Content] = [Content(" · ".join(facts))]
    if model.state == "pulling":
        share = text.share(model.fetched_bytes, model.fetch_bytes)
        of = f"{text.size(model.fetched_bytes)} of {text.size(model.fetch_bytes)}"
        parts.append(Content.assemble((gauge(share, 40), "$primary"), f" {text.percent(share)}  {of}"))
    if model.error:
        parts.append(Content.styled(text.line(model.error, 400), "$error"))
    return Content("\n").join(parts)
