"""Splits an output into reasoning and the visible rest, which goes on to the tool parser.

White space that touches a tag is dropped on both sides of it, as chat templates add it there and take it away again.
Thoughts may come again after text or calls. A tag inside a call's arguments is text; so are an opening tag inside
thoughts and a closing tag outside them. If the prompt opened the block and the model opens it once more at the start,
that tag is dropped.
"""

from __future__ import annotations

from millstream.parsing.events import Event, Piece, Span
from millstream.parsing.reasoning.format import ReasoningFormat
from millstream.parsing.scan.channel import TextChannel
from millstream.parsing.scan.machine import Machine, joined
from millstream.parsing.scan.markers import Markers
from millstream.parsing.scan.scanner import EndOfInput, Scanner, Steps


def visible_text(scanner: Scanner) -> Steps[None]:
    """The tool stage of a request without tools: all is text, control tokens vanish."""
    yield from scanner.until(Markers(()), scanner.content.write)


class ReasoningSplit:
    """The reasoning stage in front of a tool stage. Obeys the `Parser` contract.

    Args:
        format: the tags.
        visible: parser of the visible text.
        opened: whether the prompt already opened the block.
    """

    def __init__(self, format: ReasoningFormat, visible: Machine, *, opened: bool = False) -> None:
        self._visible = visible
        self._opens = Markers([format.open])
        self._closes = Markers([format.close])
        self._opened = opened
        self._out: list[Event] = []
        self._thoughts = TextChannel(lambda text: self._out.append(Span(text, "reasoning")), after_markup=True)
        self._text = TextChannel(lambda text: self._pass_on(Piece(text)))
        self.scanner = Scanner(self._special)
        self._steps = self._split(self.scanner)
        next(self._steps)

    def feed(self, piece: Piece) -> list[Event]:
        self.scanner.push(piece)
        next(self._steps, None)
        return self._drain()

    def finish(self) -> list[Event]:
        self.scanner.close()
        next(self._steps, None)
        self._out.extend(self._visible.finish())
        return self._drain()

    def _split(self, scanner: Scanner) -> Steps[None]:
        try:
            if self._opened:
                yield from scanner.space()
                yield from scanner.accept(self._opens)
            thinking = self._opened
            while True:
                if thinking:
                    yield from scanner.until(self._closes, self._thoughts.write)
                else:
                    marker = yield from scanner.until(self._opens, self._text.write)
                    if self._visible.inside_call:
                        self._literal(marker)
                        continue
                self._thoughts.markup()
                self._text.markup()
                thinking = not thinking
        except EndOfInput:
            self._thoughts.flush()
            self._text.flush()

    def _literal(self, marker: str) -> None:
        if self.scanner.marker_was_special:
            self._special(marker)
        else:
            self._text.write(marker)

    def _special(self, name: str) -> None:
        """A control token that is no tag here: the tool stage may know it."""
        self._text.flush()
        self._pass_on(Piece(name, special=True))

    def _pass_on(self, piece: Piece) -> None:
        self._out.extend(self._visible.feed(piece))

    def _drain(self) -> list[Event]:
        out, self._out = self._out, []
        return joined(out)
