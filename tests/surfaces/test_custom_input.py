"""The free text of a custom tool's call, however its JSON is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.surfaces.responses.custom_input import InputReader
from support.strategies import pieces


def read(fragments: list[str]) -> str:
    reader = InputReader()
    return "".join(map(reader.feed, fragments)) + reader.finish()


@given(st.data(), st.text(), st.booleans())
def test_the_text_comes_through_any_cut(data: st.DataObject, text: str, ascii_only: bool) -> None:
    raw = json.dumps({"input": text}, ensure_ascii=ascii_only)
    assert read(data.draw(pieces(raw))) == text


@given(st.data(), st.text('{}":input\\u0aAdD8ceE ,', max_size=30))
def test_every_cut_of_anything_gives_the_same(data: st.DataObject, raw: str) -> None:
    assert read(data.draw(pieces(raw))) == read([raw])


@given(st.text(), st.integers(0, 200))
def test_a_cut_answer_gives_a_prefix(text: str, size: int) -> None:
    assert text.startswith(read(list(json.dumps({"input": text})[:size])))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("", ""),
        ("{}", ""),
        ('{"inp', ""),
        ("just text", "just text"),
        ('"quoted"', "quoted"),
        ('{"a": 1, "input": "x"}', "x"),
        ('{"input": 3}', '{"input": 3}'),
        ('{"input": "\\ud83d!"}', "\ufffd!"),
        ('{"input": "\\ude00"}', "\ufffd"),
        ('{"input": "\\q"}', "q"),
    ],
)
def test_other_forms_are_shown(raw: str, text: str) -> None:
    assert read([raw]) == text
    assert read(list(raw)) == text
