"""Help: every key, and what the words on the other pages mean."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from millstream.tui.pages.page import Page

_SECTIONS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Everywhere",
        (
            ("1 … 7, F1 … F7", "go to a page; the F keys also while you write"),
            ("?  F7", "this page"),
            ("tab, shift+tab", "to the next, the last part of a page"),
            ("ctrl+r", "try to connect now, when the server is away"),
            ("ctrl+p", "all commands, themes, a picture of the screen"),
            ("q, ctrl+q", "quit; with `serve --tui` the server then finishes its requests"),
        ),
    ),
    (
        "Requests",
        (
            ("enter", "open: timeline, parameters, the answer on the wire"),
            ("w", "in an open request: chat, responses, messages"),
            ("c", "cancel; its client gets an error that says so"),
            ("p", "pause; again: resume. The client keeps its connection"),
            ("i", "priority; lower is served first"),
            ("s", "sort by age, tokens, speed"),
        ),
    ),
    (
        "Models",
        (("l  u", "load, unload"), ("p  x", "pull, stop a pull")),
    ),
    (
        "Chat",
        (
            ("enter, ctrl+j", "send, new line"),
            ("escape", "stop the answer; else leave the field"),
            ("ctrl+g, up", "edit the last message and send it again"),
            ("ctrl+r", "answer the last message again"),
            ("ctrl+t", "show or hide the thinking"),
            ("ctrl+o  ctrl+l", "choose the model, begin anew"),
        ),
    ),
    ("Bench", (("r  x", "run, stop"), ("tab", "to the numbers"))),
    ("Logs", (("l", "least level shown"), ("/", "filter; escape ends it"), ("f", "follow, or stay"))),
    (
        "What a request waits for",
        (
            ("step budget", "its turn: the step was full of others' tokens"),
            ("max sequences", "a place in the batch; `serve --max-batch` sets how many there are"),
            ("kv cache", "blocks of the KV cache; `serve --kv-cache` sets how large it is"),
            ("shared prefix", "another request computes the same beginning; it will be reused"),
            ("paused reader", "its client, which does not read"),
            ("suspected", "its trial: it was in the batch when the engine died"),
            ("held", "you: an operator paused it"),
        ),
    ),
    (
        "Words",
        (
            ("first token (TTFT)", "from a request's arrival to its first token"),
            ("between tokens (ITL)", "gaps between the tokens of one answer"),
            ("prefix hits", "part of the prompt tokens that the prefix cache had"),
            ("resumed", "open answers that went on after a restart of the engine"),
            ("preemptions", "times that a sequence gave its blocks to another"),
        ),
    ),
)


class HelpPage(Page):
    """One long page."""

    NAME = "help"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (140, "-wide")]
    DEFAULT_CSS = """
    HelpPage {
        #sections { padding: 0 2; }
        .section { height: auto; margin-bottom: 1; }
        &.-wide #sections { layout: grid; grid-size: 2; grid-rows: auto; grid-gutter: 0 4; }
    }
    """

    def body(self) -> ComposeResult:
        with VerticalScroll(id="sections"):
            for title, entries in _SECTIONS:
                yield Static(section_content(title, entries), classes="section")

    def on_mount(self) -> None:
        self.query_one("#sections").focus()


def section_content(title: str, entries: tuple[tuple[str, str], ...]) -> Content:
    """A title and its lines."""
    lines = [Content.styled(title, "bold $primary")]
    lines += [Content.assemble((f"  {name:<22}", "bold"), meaning) for name, meaning in entries]
    return Content("\n").join(lines)
