"""Server-sent events as bytes, cut into frames without mercy for what a strict client could not read."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """A broken rule, and the number of the frame that broke it (-1: the stream as a whole)."""

    rule: str
    frame: int
    message: str


class Frame(msgspec.Struct, frozen=True):
    """One frame: ``data`` joined from its data lines; None for a frame of comments only."""

    data: str | None
    event: str | None = None
    comment: str | None = None


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
    for number, block in enumerate(text.split("\n\n")):
        if not block:
            continue
        fields: dict[str, list[str]] = {"data": [], "event": [], "": []}
        for line in block.split("\n"):
            name, colon, value = line.partition(":")
            if not colon or name not in fields:
                findings.append(Finding("framing", number, f"not a line of an event stream: {line[:80]!r}"))
                continue
            fields[name].append(value.removeprefix(" "))
        frames.append(Frame(*("\n".join(fields[name]) if fields[name] else None for name in ("data", "event", ""))))
    return frames, findings
