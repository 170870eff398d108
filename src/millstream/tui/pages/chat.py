"""Chat: talk with a model of the server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option
from textual.worker import Worker

from millstream.tui import text
from millstream.tui.conversation import Turn, messages_of, read_chunk
from millstream.tui.errors import ServerError
from millstream.tui.pages.page import Page
from millstream.tui.state import State
from millstream.tui.widgets.turn import TurnView

_DRAW_SECONDS = 0.08
_KEPT_TURNS = 200


class Composer(TextArea):
    """Where a message is written: enter sends, ctrl+j (or shift+enter, where the terminal tells it) breaks a line."""

    class Sent(Message):
        """Enter was pressed."""

    class Recall(Message):
        """Up was pressed in an empty field."""

    DEFAULT_CSS = """
    Composer { height: auto; min-height: 3; max-height: 8; border: round $primary 50%; }
    Composer:focus { border: round $primary; }
    """

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.prevent_default().stop()
            self.post_message(self.Sent())
        elif event.key in ("ctrl+j", "shift+enter"):
            event.prevent_default().stop()
            self.insert("\n")
        elif event.key == "up" and not self.text:
            event.prevent_default().stop()
            self.post_message(self.Recall())


class ChatPage(Page):
    """One conversation."""

    NAME = "chat"
    BINDINGS = [
        Binding("escape", "stop", "Stop/leave field", priority=False),
        Binding("ctrl+g", "edit", "Edit last", priority=True),
        Binding("ctrl+r", "resend", "Again", priority=True),
        Binding("ctrl+t", "fold", "Thinking", priority=True),
        Binding("ctrl+o", "choose", "Model", priority=True),
        Binding("ctrl+l", "anew", "New", priority=True),
        Binding("enter", "write", "Write", show=False),
    ]
    DEFAULT_CSS = """
    ChatPage {
        #with { height: 1; padding: 0 1; color: $text-muted; }
        #turns { height: 1fr; }
        #choice { display: none; height: auto; max-height: 10; margin: 0 1; border: round $accent; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Turn] = []
        self.model = ""
        """What is asked; empty: the default."""
        self._answering: Worker[None] | None = None

    def body(self) -> ComposeResult:
        yield Static(id="with")
        yield VerticalScroll(id="turns")
        yield OptionList(id="choice", markup=False)
        yield Composer(id="message", tab_behavior="focus", show_line_numbers=False, placeholder="Write, then enter")

    def on_mount(self) -> None:
        self.query_one("#turns").anchor()
        self.query_one(Composer).focus()

    def show(self, state: State) -> None:
        shown = text.line(self.model or state.default_model, 60) or "no model"
        self.query_one("#with", Static).update(Content(f"with {shown} · ctrl+j: new line"), layout=False)

    @property
    def busy(self) -> bool:
        """Whether an answer is coming."""
        return self._answering is not None and not self._answering.is_finished

    async def on_composer_sent(self) -> None:
        """Send what is in the field."""
        composer = self.query_one(Composer)
        question = composer.text.strip("\n")
        if self.busy or not question.strip():
            return
        composer.clear()
        await self._ask(question)

    async def on_composer_recall(self) -> None:
        """Up in an empty field."""
        await self.action_edit()

    def action_stop(self) -> None:
        """Stop the answer; without one, leave the field so that single keys go to the pages."""
        if self.query_one("#choice").display:
            self._close_choice()
        elif self.busy and self._answering is not None:
            self._answering.cancel()
        else:
            self.query_one("#turns").focus()

    def action_write(self) -> None:
        """Back to the field."""
        self.query_one(Composer).focus()

    async def action_edit(self) -> None:
        """Take the last question back into the field, and its answer away."""
        if self.turns and not self.busy:
            question = await self._take_back()
            composer = self.query_one(Composer)
            composer.text = text.plain(question)
            composer.move_cursor(composer.document.end)
            composer.focus()

    async def action_resend(self) -> None:
        """Ask the last question again; while the server is away the key does what it does elsewhere."""
        if self.top.state.link.state == "lost":
            self.top.action_retry()
        elif self.turns and not self.busy:
            await self._ask(await self._take_back())

    def action_fold(self) -> None:
        """Show or hide the last thoughts."""
        for view in list(self.query(TurnView))[-1:]:
            view.toggle()

    async def action_anew(self) -> None:
        """Forget the conversation."""
        if self._answering is not None:
            self._answering.cancel()
        self.turns.clear()
        await self.query(TurnView).remove()

    def action_choose(self) -> None:
        """Offer the models that answer."""
        choice = self.query_one("#choice", OptionList)
        names = [model.name for model in self.top.state.models if model.state == "loaded"]
        names = names or [
            engine.model for engine in (self.top.state.snapshot.engines if self.top.state.snapshot else [])
        ]
        if not names:
            self.app.notify("The server tells of no loaded model.", severity="warning")
            return
        choice.clear_options()
        choice.add_options([Option(Content(text.line(name, 70)), id=f"m{at}") for at, name in enumerate(names)])
        self._names = names
        choice.highlighted = names.index(self.model) if self.model in names else 0
        choice.display = True
        choice.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A model was chosen."""
        self.model = self._names[event.option_index]
        self._close_choice()
        self.show(self.top.state)

    def _close_choice(self) -> None:
        self.query_one("#choice").display = False
        self.query_one(Composer).focus()

    async def _take_back(self) -> str:
        question = self.turns.pop().question
        await list(self.query(TurnView))[-1].remove()
        return question

    async def _ask(self, question: str) -> None:
        turn = Turn(question)
        self.turns.append(turn)
        if len(self.turns) > _KEPT_TURNS:
            self.turns.pop(0)
            await self.query(TurnView).first().remove()
        view = TurnView(turn)
        turns = self.query_one("#turns", VerticalScroll)
        await turns.mount(view)
        turns.anchor()
        self._answering = self.work(self._answer(turn, view), group="answer")

    async def _answer(self, turn: Turn, view: TurnView) -> None:
        body: dict[str, Any] = {
            "messages": messages_of(self.turns),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if model := self.model or self.top.state.default_model:
            body["model"] = model
        begun = time.monotonic()
        timer = self.set_interval(_DRAW_SECONDS, view.refresh_turn)
        try:
            async for event in self.top.server.chat(body):
                turn.answer.take(read_chunk(event))
            if not turn.answer.finish_reason:
                turn.answer.problem = "the server ended the stream before the answer was whole."
        except ServerError as error:
            turn.answer.problem = error.message
        except asyncio.CancelledError:
            turn.answer.problem = "stopped"
        finally:
            timer.stop()
            turn.answer.seconds = time.monotonic() - begun
            if view.is_mounted:
                view.refresh_turn()
