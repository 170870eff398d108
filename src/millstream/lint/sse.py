"""Server-sent events as bytes, cut into frames without mercy for what a strict client could not read."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """A broken rule, and the number of the frame that broke it (-1: the stream as a whole). ``line``: where in the
    body, from 1, if framing itself is at fault."""

    rule: str
    frame: int
    message: str
    line: int | None = None


class Frame(msgspec.Struct, frozen=True):
    """One frame: ``data`` joined from its data lines; None for one of comments only. ``line``: its first, from 1."""

    data: str | None
    event: str | None = None
    comment: str | None = None
    line: int = 1


def parse(raw: bytes) -> tuple[list[Frame], list[Finding]]:
    """The frames of a whole response body, and what is wrong with its framing."""
    findings: list[Finding] = []
    if raw and not raw.endswith(b"\n\n"):
        findings.append(Finding("framing", -1, "the body does not end with an empty line"))
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return [], [Finding("framing", -1, f"the body is not UTF-8: {error}")]
    frames = []
    first = 1
    for number, block in enumerate(text.split("\n\n")):
        start, first = first, first + block.count("\n") + 2
        if not block.strip("\n"):
            continue
        fields: dict[str, list[str]] = {"data": [], "event": [], "": [], "id": [], "retry": []}
        for offset, line in enumerate(block.split("\n")):
            if not line:  # more empty lines than one between two frames: legal
                continue
            name, colon, value = line.partition(":")
            if not colon or name not in fields:
                message = f"not a line of an event stream: {line[:80]!r}"
                findings.append(Finding("framing", number, message, start + offset))
                continue
            fields[name].append(value.removeprefix(" "))
        data, event, comment = ("\n".join(fields[name]) if fields[name] else None for name in ("data", "event", ""))
        frames.append(Frame(data, event, comment, start))
    return frames, findings
