"""A stream as somebody captured it: a body, perhaps behind the headers that ``curl -i`` prints."""

from __future__ import annotations

import re

import msgspec

from millstream.lint.sse import Finding

_STATUS = re.compile(rb"HTTP/[0-9.]+ (\d{3})")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


class Capture(msgspec.Struct, frozen=True):
    """``body`` has plain line ends. ``first_line``: the line of the capture on which it begins, from 1. ``findings``:
    what is wrong with the headers."""

    body: bytes
    first_line: int
    findings: tuple[Finding, ...]


def read_capture(raw: bytes) -> Capture:
    """Take the headers off, if there are any, and check what they say.

    Heads of interim answers and redirects, which curl prints too, are skipped. Line ends of CR LF, which the standard
    allows, become plain ones.
    """
    rest = raw
    findings: tuple[Finding, ...] = ()
    while status := _STATUS.match(rest):
        end = _END_OF_HEAD.search(rest)
        head, rest = (rest, b"") if end is None else (rest[: end.start()], rest[end.end() :])
        findings = _check(int(status[1]), head)
    first_line = raw[: len(raw) - len(rest)].count(b"\n") + 1
    return Capture(rest.replace(b"\r\n", b"\n"), first_line, findings)


def _check(status: int, head: bytes) -> tuple[Finding, ...]:
    findings = []
    if status != 200:
        findings.append(Finding("status", -1, f"the status is {status}", 1))
    kind = re.search(rb"(?im)^content-type:[ \t]*([^;\r\n]*)", head)
    shown = kind[1].decode("latin-1").strip() if kind else ""
    if shown.lower() != "text/event-stream":
        findings.append(Finding("content-type", -1, f"the content type is {shown or 'missing'!r}", 1))
    return tuple(findings)
