"""Captures from the wire: chunks, announced lengths, requests before the answer, and how each can be cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.deltas import Content, Finish, Start, Usage
from millstream.lint.capture import read_capture
from millstream.lint.explain import Fault, lint_capture
from millstream.surfaces import openai_chat
from millstream.surfaces.wire import WireOptions
from support.live import read_all, serving
from support.wire import write

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM = write(
    openai_chat.stream_encoder(WireOptions(model="m"), response_id="chatcmpl-1", created=9),
    [Start(2), Content("aé€😀"), Content("b"), Finish("stop", Usage(2, 3))],
)
FRAMES = [frame + b"\n\n" for frame in STREAM.split(b"\n\n")[:-1]]


def in_chunks(parts: list[bytes], *, line_end: bytes = b"\r\n", last: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x%b%b%b" % (len(part), line_end, part, line_end) for part in parts if part) + last


def transfer(raw: bytes) -> list[Fault]:
    return [fault for fault in lint_capture(raw, "chat") if fault.rule == "transfer"]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=8), head=st.booleans(), crlf=st.booleans())
def test_chunks_are_put_together_however_they_were_cut(cuts: list[int], head: bool, crlf: bool) -> None:
    stream = STREAM.replace(b"\n", b"\r\n") if crlf else STREAM
    places = [0, *sorted(cuts), len(stream)]
    parts = [stream[a:b] for a, b in itertools.pairwise(places)]
    raw = (HEAD if head else b"") + in_chunks(parts)
    assert read_capture(raw).body == STREAM
    assert lint_capture(raw, "chat") == []


def test_what_may_stand_beside_chunks() -> None:
    trailers = in_chunks(FRAMES, last=b"0;a=b\r\nx-checksum: 1\r\nx-more: 2\r\n\r\n")
    extended = in_chunks(FRAMES).replace(b"\r\n", b";name=value\r\n", 1)
    unix = in_chunks(FRAMES, line_end=b"\n", last=b"0\n\n")  # an editor's or a terminal's copy
    for raw in (trailers, extended, unix):
        assert lint_capture(HEAD + raw, "chat") == []


def test_a_client_that_put_the_chunks_together_may_leave_the_header() -> None:
    assert lint_capture(HEAD + STREAM, "chat") == []


@pytest.mark.parametrize("length", [b"content-length: %d\r\n", b""])
def test_a_request_before_the_answer_is_passed_over(length: bytes) -> None:
    body = b'{"say": "HTTP/1.1 200 OK"}' if length else b"{}"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + (length % len(body) if length else b"") + b"\r\n"
    assert lint_capture(head + body + HEAD + in_chunks(FRAMES), "chat") == []


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (in_chunks(FRAMES, last=b""), "last chunk (of size 0) is missing"),
        (in_chunks(FRAMES, last=b"0\r\n"), "not followed by an empty line"),
        (in_chunks(FRAMES, last=b"")[:-2], "has no line end"),
        (in_chunks(FRAMES)[:150], "has only"),
        (in_chunks(FRAMES).replace(b"\r\n", b"\r\nxyz", 1), "not that of its data"),
        (in_chunks(FRAMES, last=b"zz\r\n\r\n"), "not the size of a chunk: b'zz'"),
        (in_chunks(FRAMES) + b"HTTP/1.1 200 OK\r\n", "17 bytes after the last chunk"),
    ],
)
def test_broken_chunks_are_explained(raw: bytes, says: str) -> None:
    (fault,) = transfer(HEAD + raw)
    assert says in fault.message
    assert "one of size 0" in fault.expected
    assert fault.line is not None
    assert 5 <= fault.line <= (HEAD + raw).count(b"\n") + 1


def test_a_stream_that_was_cut_between_chunks_says_both() -> None:
    """The transport tells that it was cut, the surface what is missing."""
    faults = lint_capture(HEAD + in_chunks(FRAMES[:-1], last=b""), "chat")
    assert [fault.rule for fault in faults] == ["transfer", "done-last"]


@pytest.mark.parametrize(("off", "says"), [(0, None), (1, "the stream was cut"), (-1, "are there")])
def test_announced_lengths(off: int, says: str | None) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % (len(STREAM) + off)
    faults = transfer(head + STREAM)
    assert [says in fault.message for fault in faults if says] == ([True] if says else [])
    assert len(faults) == (says is not None)


def test_faults_are_told_at_their_line_of_the_capture() -> None:
    wrong = [*FRAMES[:2], b"hello\n\n", *FRAMES[2:]]
    raw = HEAD + in_chunks(wrong)
    (fault,) = lint_capture(raw, "chat")
    assert (fault.rule, fault.line) == ("framing", raw[: raw.index(b"hello")].count(b"\n") + 1)
    halves = [STREAM[: len(STREAM) // 2], STREAM[len(STREAM) // 2 :].replace(b'"b"', b"7")]
    raw = HEAD + in_chunks(halves)
    (fault,) = lint_capture(raw, "chat")
    place = raw.index(b":7")
    assert (fault.rule, fault.line) == ("delta", raw[:place].count(b"\n") + 1)


@given(raw=st.binary(max_size=60), head=st.sampled_from([b"", HEAD, b"3\r\nabc\r\n", b"GET / HTTP/1.1\r\n\r\n"]))
def test_no_bytes_make_it_stumble(raw: bytes, head: bytes) -> None:
    lint_capture(head + raw, "chat")


def test_what_the_server_sends_is_whole() -> None:
    body = b'{"model":"tiny","messages":[{"role":"user","content":"hi"}],"stream":true}'
    ask = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    with serving() as live, live.raw(ask) as sock:
        raw = read_all(sock)
    assert b"transfer-encoding: chunked" in raw.lower()
    assert lint_capture(ask + raw, "chat") == []
    assert [fault.rule for fault in lint_capture(raw.removesuffix(b"0\r\n\r\n"), "chat")] == ["transfer"]
