"""A stream as somebody captured it: a body, perhaps in chunks, perhaps behind a head, perhaps behind its request.

That is what ``curl -N``, ``curl -iN``, ``curl -iN --raw`` and the dump of a connection show.
"""

from __future__ import annotations

import re

import msgspec

from millstream.lint.sse import Finding
from millstream.lint.transfer import capture_lines, chunked, looks_chunked, plain

_STATUS = re.compile(rb"HTTP/[0-9.]+ (\d{3})")
_REQUEST = re.compile(rb"[A-Z]{3,7} [^ \r\n]+ HTTP/1\.[01]\r?\n")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


class Capture(msgspec.Struct, frozen=True):
    """``body`` has plain line ends. ``lines``: for each of its lines the line of the capture, from 1. ``findings``:
    what is wrong with the head and with how the body was transferred, at lines of the capture."""

    body: bytes
    lines: list[int]
    findings: tuple[Finding, ...]


def read_capture(raw: bytes) -> Capture:
    """Take off what is not the stream, and check what it says.

    Heads of interim answers and redirects, which curl prints too, are skipped. Line ends of CR LF, which the standard
    allows, become plain ones. Whether chunks are still there is seen by the body: most clients leave the header that
    tells of them when they have put them together.
    """
    at = _request_end(raw)
    findings: list[Finding] = []
    head = b""
    while status := _STATUS.match(raw, at):
        end = _END_OF_HEAD.search(raw, at)
        begin, at = at, len(raw) if end is None else end.end()
        head = raw[begin:at]
        findings = _check(int(status[1]), head, raw[:begin].count(b"\n") + 1)
    body = chunked(raw, at) if looks_chunked(raw[at : at + 4096]) else plain(raw, at, _length(head))
    return Capture(body.data.replace(b"\r\n", b"\n"), capture_lines(raw, body), (*findings, *body.findings))


def _request_end(raw: bytes) -> int:
    """Where the answer begins: behind the request, if the capture has one."""
    if not _REQUEST.match(raw):
        return 0
    end = _END_OF_HEAD.search(raw)
    if end is None:
        return 0
    length = _length(raw[: end.end()])
    answer = _STATUS.search(raw, end.end() if length is None else end.end() + length)
    return len(raw) if answer is None else answer.start()


def _length(head: bytes) -> int | None:
    length = re.search(rb"(?im)^content-length:[ \t]*(\d{1,18})[ \t]*\r?$", head)
    return int(length[1]) if length else None


def _check(status: int, head: bytes, line: int) -> list[Finding]:
    findings = []
    if status != 200:
        findings.append(Finding("status", -1, f"the status is {status}", line))
    kind = re.search(rb"(?im)^content-type:[ \t]*([^;\r\n]*)", head)
    shown = kind[1].decode("latin-1").strip() if kind else ""
    if shown.lower() != "text/event-stream":
        findings.append(Finding("content-type", -1, f"the content type is {shown or 'missing'!r}", line))
    return findings
