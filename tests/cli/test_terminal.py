"""What a model may write to a terminal."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.terminal import has_colour, printable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text())
def test_a_terminal_gets_no_control_characters_and_all_else(text: str) -> None:
    shown = printable(text, Terminal())
    assert shown == "".join(c for c in text if c in "\n\t" or not (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0))


@given(st.text())
def test_a_pipe_gets_the_text_as_it_is(text: str) -> None:
    assert printable(text, io.StringIO()) == text


def test_a_closed_stream_is_no_terminal() -> None:
    stream = Terminal()
    stream.close()
    assert not has_colour(io.StringIO())
