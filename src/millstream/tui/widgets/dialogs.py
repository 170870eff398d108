"""Questions before something is done."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from millstream.tui import text

_CSS = """
{name} {{ align: center middle; }}
{name} #dialog {{
    width: 64; max-width: 95%; height: auto; padding: 1 2; background: $surface; border: round $primary;
}}
{name} #dialog Horizontal {{ height: auto; align-horizontal: right; margin-top: 1; }}
{name} #dialog Button {{ margin-left: 2; min-width: 12; }}
"""


class Confirm(ModalScreen[bool]):
    """Yes or no; the answer to anything but a clear yes is no."""

    DEFAULT_CSS = _CSS.format(name="Confirm")
    BINDINGS = [("y", "answer(True)", "Yes"), ("n,escape", "answer(False)", "No")]

    def __init__(self, question: str, note: str = "", *, yes: str = "Yes") -> None:
        super().__init__()
        self._question, self._note, self._yes = question, note, yes

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content.styled(text.plain(self._question), "bold"), id="question")
            if self._note:
                yield Static(Content(text.plain(self._note)))
            with Horizontal():
                yield Button(f"{self._yes} (y)", variant="primary", id="yes")
                yield Button("No (n)", id="no")

    def on_mount(self) -> None:
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Close with an answer."""
        self.dismiss(yes)


class AskNumber(ModalScreen[int | None]):
    """A whole number, or None if the user thinks better of it."""

    DEFAULT_CSS = _CSS.format(name="AskNumber")
    BINDINGS = [("escape", "leave", "Leave it")]

    def __init__(self, question: str, note: str, value: int, *, low: int, high: int) -> None:
        super().__init__()
        self._question, self._note, self._value = question, note, value
        self._low, self._high = low, high

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content.styled(text.plain(self._question), "bold"), id="question")
            yield Static(Content(text.plain(self._note)))
            yield Input(str(self._value), type="integer", max_length=6, select_on_focus=True)
            with Horizontal():
                yield Button("Set (enter)", variant="primary", id="set")
                yield Button("Leave (esc)", id="leave")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self) -> None:
        self._close()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "set":
            self._close()
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        """Close without a number."""
        self.dismiss(None)

    def _close(self) -> None:
        field = self.query_one(Input)
        try:
            value = int(field.value)
        except ValueError:
            value = self._low - 1
        if self._low <= value <= self._high:
            self.dismiss(value)
        else:
            self.app.notify(f"{self._low} to {self._high}, please.", severity="error")
            field.focus()
