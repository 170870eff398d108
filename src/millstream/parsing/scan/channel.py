"""Visible text with one rule for white space: a run of it that touches markup is dropped, any other is text."""

from __future__ import annotations

from collections.abc import Callable


class TextChannel:
    """Passes text to ``emit``, holding back white space until it is known what follows it."""

    def __init__(self, emit: Callable[[str], None], *, after_markup: bool = False) -> None:
        self._emit = emit
        self._held: list[str] = []
        self._after_markup = after_markup
        self.empty = True
        """Whether nothing but white space and markup has come so far."""

    def write(self, text: str) -> None:
        if self._after_markup:
            text = text.lstrip()
        if not text:
            return
        body = text.rstrip()
        if not body:
            self._held.append(text)
            return
        self._after_markup = False
        self.empty = False
        self._emit("".join(self._held) + body)
        self._held = [text[len(body) :]] if len(body) < len(text) else []

    def markup(self) -> None:
        """Markup stands here."""
        self._held = []
        self._after_markup = True

    def flush(self) -> None:
        """The text ends here, and not because of markup."""
        held, self._held = "".join(self._held), []
        if held:
            self._emit(held)
