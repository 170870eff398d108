"""HTTP/1.1 bodies as they are on the wire: chunks (RFC 9112, section 7.1) or a length that was announced."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

import msgspec

from millstream.lint.sse import Finding

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*\r?\n")


class Body(msgspec.Struct, frozen=True):
    """``data``: the content. ``pieces``: where in the capture (offsets in bytes) each part of it stands, in order:
    (offset in ``data``, offset in the capture). ``findings``: what is wrong with the framing, at lines of the capture.
    """

    data: bytes
    pieces: tuple[tuple[int, int], ...]
    findings: tuple[Finding, ...]


def looks_chunked(body: bytes) -> bool:
    """Whether a body begins with the size of a chunk. What clients have already put together never does: no line of an
    event stream is a number alone."""
    return _SIZE.match(body) is not None


def plain(capture: bytes, begin: int, announced: int | None) -> Body:
    """A body without chunks from the offset ``begin``; ``announced``: its Content-Length, if there is one."""
    data = capture[begin:]
    findings: tuple[Finding, ...] = ()
    if announced is not None and len(data) != announced:
        found = f"Content-Length announces {announced} bytes, {len(data)} are there"
        findings = (Finding("transfer", -1, found + (": the stream was cut" if len(data) < announced else ""), 1),)
    return Body(data, ((0, begin),), findings)


def chunked(capture: bytes, begin: int) -> Body:
    """A body of chunks from the offset ``begin``. What cannot be read ends it; the finding says why."""
    parts: list[bytes] = []
    places: list[int] = []
    at = begin
    problem = None
    while problem is None:
        head = _SIZE.match(capture, at)
        if head is None:
            problem = _no_size(capture[at:])
            break
        size, start = int(head[1], 16), head.end()
        if size == 0:
            at, problem = _last(capture, start)
            break
        data = capture[start : start + size]
        parts.append(data)
        places.append(start)
        end = _LINE_END.match(capture, start + size)
        if len(data) < size:
            problem = f"a chunk of {size} bytes has only {len(data)}: the stream was cut"
        elif end is None and start + size == len(capture):
            problem = "a chunk has no line end, and the last chunk (of size 0) is missing: the stream was cut"
        elif end is None:
            problem = f"a chunk of {size} bytes is not followed by a line end: its size is not that of its data"
        else:
            at = end.end()
    starts = accumulate((len(part) for part in parts[:-1]), initial=0)
    findings = () if problem is None else (Finding("transfer", -1, problem, capture[:at].count(b"\n") + 1),)
    return Body(b"".join(parts), tuple(zip(starts, places, strict=False)), findings)


def _no_size(rest: bytes) -> str:
    if not rest:
        return "the last chunk (of size 0) is missing: the stream was cut"
    return f"not the size of a chunk: {rest.splitlines()[0][:40]!r}"


def _last(capture: bytes, at: int) -> tuple[int, str | None]:
    """What follows the size of the last chunk: trailers and an empty line. (offset, problem)"""
    while trailer := _TRAILER.match(capture, at):
        at = trailer.end()
    end = _LINE_END.match(capture, at)
    if end is None:
        return at, "the last chunk is not followed by an empty line: the stream was cut"
    if left := len(capture) - end.end():
        return end.end(), f"{left} bytes after the last chunk"
    return at, None


def capture_lines(capture: bytes, body: Body) -> list[int]:
    """For each line of the body the line of the capture on which it begins, from 1."""
    breaks = [match.end() for match in re.finditer(rb"\n", capture)]
    starts = [0, *(match.end() for match in re.finditer(rb"\n", body.data))]
    offsets = [offset for offset, _ in body.pieces] or [0]
    places = [place for _, place in body.pieces] or [0]
    lines = []
    for start in starts:
        piece = bisect_right(offsets, start) - 1
        lines.append(bisect_right(breaks, places[piece] + start - offsets[piece]) + 1)
    return lines
