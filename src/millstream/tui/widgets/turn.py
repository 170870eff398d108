"""A question and its answer on the chat page."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Collapsible, Static

from millstream.tui import text
from millstream.tui.conversation import Turn

_REASONS = {"stop": "", "": "", "length": "cut off at the length limit", "tool_calls": "wants its calls answered"}


class TurnView(Vertical):
    """`refresh_turn` draws what has come. Model text is shown as it is: no markup, no terminal codes."""

    DEFAULT_CSS = """
    TurnView {
        height: auto; margin: 0 1 1 1;
        .question { color: $secondary; text-style: bold; }
        .answer { padding-left: 2; }
        .calls { padding-left: 2; color: $accent; }
        .foot { padding-left: 2; color: $text-muted; }
        Collapsible { border: none; padding: 0 0 0 2; margin: 0; background: transparent; }
        Collapsible Contents { padding: 0 0 0 2; color: $text-muted; }
    }
    """

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self._drawn: tuple[int, int] = (-1, -1)

    def compose(self) -> ComposeResult:
        yield Static(Content(f"▌ {text.plain(self.turn.question)}"), classes="question")
        with Collapsible(title="thinking", collapsed=True):
            yield Static(classes="thinking")
        yield Static(classes="answer")
        yield Static(classes="calls")
        yield Static(classes="foot")

    def on_mount(self) -> None:
        self.refresh_turn()

    def refresh_turn(self) -> None:
        """Draw the answer as it is now; nothing once the view is being taken away."""
        if not self.is_attached or not self.children:
            return
        answer = self.turn.answer
        drawn = (len(answer.thinking), len(answer.content))
        fold = self.query_one(Collapsible)
        fold.display = bool(answer.thinking)
        if drawn[0] != self._drawn[0]:
            fold.title = f"thinking ({text.count(len(answer.thinking.split()))} words)"
            self.query_one(".thinking", Static).update(Content(text.plain(answer.thinking.strip())))
        if drawn[1] != self._drawn[1]:
            self.query_one(".answer", Static).update(Content(text.plain(answer.content.strip("\n"))))
        self._drawn = drawn
        self.query_one(".answer").display = bool(answer.content)
        calls = [f"→ {text.line(name, 60)}({text.line(arguments, 2000)})" for name, arguments in answer.calls.values()]
        self._show(".calls", "\n".join(calls))
        self._show(".foot", foot(self.turn))

    def toggle(self) -> None:
        """Fold or unfold its thoughts."""
        fold = self.query_one(Collapsible)
        fold.collapsed = not fold.collapsed

    def _show(self, selector: str, shown: str) -> None:
        widget = self.query_one(selector, Static)
        widget.display = bool(shown)
        widget.update(Content(shown))


def foot(turn: Turn) -> str:
    """How the answer ended, in one line; dots while it has not."""
    answer = turn.answer
    if answer.problem:
        return f"✖ {answer.problem}"
    if answer.seconds is None:
        return "…"
    parts = [_REASONS.get(answer.finish_reason, text.line(answer.finish_reason, 40))]
    if answer.completion_tokens:
        speed = text.rate(answer.completion_tokens / answer.seconds) if answer.seconds > 0 else "–"
        parts.append(f"{text.count(answer.completion_tokens)} tokens in {text.seconds(answer.seconds)} ({speed} tok/s)")
    return " · ".join(part for part in parts if part)
