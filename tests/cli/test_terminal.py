"""What a model may write to a terminal."""

from __future__ import annotations

import io
import re
import readline  # noqa: F401  (a prompt is marked for it once it is there)
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.terminal import has_colour, printable, prompt


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


def test_readline_counts_only_what_a_prompt_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    marked = prompt(">>> ")
    assert "\x1b" in marked
    assert re.sub("\x01[^\x02]*\x02", "", marked) == ">>> "


def test_a_prompt_is_plain_where_there_is_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert prompt(">>> ") == ">>> "
