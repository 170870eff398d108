"""Events out of bytes, however the network cuts them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.tui.sse import Event, EventReader, EventTooLong

STREAM = (
    ": comment\n\nevent: snapshot\ndata: {\"a\":\ndata: 1}\n\n"
    "data: grüße 🎉\r\n\r\nid: 7\rdata: cr only\r\rretry: 5\n\nevent: empty\n\ndata\n\ndata: [DONE]\n\ndata: unfinished"
).encode()  # fmt: skip
EVENTS = [
    Event("snapshot", '{"a":\n1}'),
    Event("message", "grüße 🎉"),
    Event("message", "cr only"),
    Event("message", ""),
    Event("message", "[DONE]"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_cut_does_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    reader = EventReader()
    events = [event for a, b in itertools.pairwise(places) for event in reader.feed(STREAM[a:b])]
    assert events == EVENTS


@given(st.binary())
def test_any_bytes_are_read(raw: bytes) -> None:
    for event in EventReader().feed(raw + b"\n\n"):
        assert isinstance(event.data, str)


@pytest.mark.parametrize("raw", [b"data: " + b"x" * 200, b"data: " + b"x" * 60 + b"\ndata: " + b"x" * 60 + b"\n"])
def test_an_event_without_end_is_refused(raw: bytes) -> None:
    with pytest.raises(EventTooLong):
        EventReader(limit=100).feed(raw)
