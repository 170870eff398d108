"""What an operator may do to a request, wherever one is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding

from millstream.admin.views import RequestView
from millstream.ir.request import PRIORITY_RANGE
from millstream.tui import text
from millstream.tui.widgets.dialogs import AskNumber, Confirm

_LOW, _HIGH = PRIORITY_RANGE

if TYPE_CHECKING:
    from millstream.tui.pages.page import Page

    _Base = Page
else:
    _Base = object


class RequestActions(_Base):
    """Keys and dialogs of a page that has a request to act on."""

    KEYS = (
        Binding("c", "cancel_request", "Cancel"),
        Binding("p", "pause_request", "Pause/resume"),
        Binding("i", "prioritise", "Priority"),
    )

    def target(self) -> RequestView | None:
        """The request that is meant."""
        raise NotImplementedError

    def action_cancel_request(self) -> None:
        """End it, if that is what the user wants."""
        if (request := self.target()) is not None:
            self._confirm(request, "cancel", "Cancel", "Its client gets an error that says so.", "Cancelled")

    def action_pause_request(self) -> None:
        """Hold it, or let it go on."""
        request = self.target()
        if request is None:
            return
        if request.held:
            self._confirm(request, "resume", "Resume", "It goes on where it was paused.", "Resumed")
        else:
            note = "It keeps its connection and gets no more tokens until you resume it."
            self._confirm(request, "pause", "Pause", note, "Paused")

    def action_prioritise(self) -> None:
        """Give it another priority."""
        request = self.target()
        if request is None:
            return

        def answered(priority: int | None) -> None:
            if priority is not None:
                work = self.top.server.set_priority(request.id, priority)
                self.do(work, f"Priority of {text.line(request.id, 40)} is {priority}.")

        note = f"It is {text.count(request.priority)}. Lower is served first; {_LOW} to {_HIGH}."
        ask = AskNumber(f"Priority of {text.line(request.id, 40)}", note, request.priority, low=_LOW, high=_HIGH)
        self.app.push_screen(ask, answered)

    def _confirm(self, request: RequestView, verb: str, title: str, note: str, done: str) -> None:
        name = text.line(request.id, 40)

        def answered(yes: bool | None) -> None:
            if yes:
                self.do(self.top.server.act(request.id, verb), f"{done} {name}.")

        who = f" of {text.line(request.key, 24)}" if request.key else ""
        about = f"{text.line(request.model, 40)}{who}, {text.count(request.completion_tokens)} tokens so far. {note}"
        self.app.push_screen(Confirm(f"{title} {name}?", about, yes=title), answered)
