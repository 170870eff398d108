"""What the server logs: in which form it goes out, and the last lines of it for an operator who looks in.

Nothing that is logged repeats what clients sent. Exceptions do, in their own words: those that a request met are told
by their kind and where they arose, unless prompts may be logged.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from millstream.admin.views import LogLine
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.wire import request_id

LogFormat = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]

KEPT_LINES = 2000
MESSAGE_CHARACTERS = 8192
"""A longer message is cut."""

FIELDS = "fields"
"""Attribute of a record (``extra={FIELDS: {…}}``): what it says as data; JSON lines have them beside the message."""

PROMPT_FIELDS = ("prompt", "answer")
"""Fields that only records of a server that may log prompts have."""

_LEVELS: tuple[tuple[int, Level], ...] = (
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
    (logging.DEBUG, "debug"),
)
LEVEL_NUMBERS: dict[str, int] = {name: number for number, name in _LEVELS}


def level_of(number: int) -> Level:
    """The name of the highest level that is not above a number."""
    return next((name for least, name in _LEVELS if number >= least), "debug")


def told(record: logging.LogRecord, *, prompts: bool = False) -> str:
    """A record's message with its exception, on one or several lines."""
    text = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        text = f"{text}\n{_exception(record.exc_info[1], whole=prompts or request_id.get() is None)}"
    return text if len(text) <= MESSAGE_CHARACTERS else text[: MESSAGE_CHARACTERS - 1] + "…"


def _exception(exception: BaseException, *, whole: bool) -> str:
    if whole:
        return "".join(traceback.format_exception(exception)).rstrip()
    frames = traceback.extract_tb(exception.__traceback__)
    places = [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in frames]
    return "\n".join([*places, f"{type(exception).__qualname__} (its words may repeat a request; see --log-prompts)"])


class TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00,000 INFO millstream.server [req_…]: message``. Further lines of a message are indented, so
    that a line that begins with a time is a record."""

    def __init__(self, *, prompts: bool = False) -> None:
        super().__init__()
        self._prompts = prompts

    def format(self, record: logging.LogRecord) -> str:
        name = request_id.get()
        whose = f" [{name}]" if name else ""
        text = told(record, prompts=self._prompts)
        if self._prompts:
            fields = getattr(record, FIELDS, {})
            text += "".join(f"\n{name}: {fields[name]}" for name in PROMPT_FIELDS if name in fields)
        text = _printable(text)
        return f"{self.formatTime(record)} {record.levelname} {record.name}{whose}: {text}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``, ``request_id`` if there is
    one, and the record's fields."""

    def __init__(self, *, prompts: bool = False) -> None:
        super().__init__()
        self._prompts = prompts

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": when.replace("+00:00", "Z"),
            "level": level_of(record.levelno),
            "logger": record.name,
            "message": told(record, prompts=self._prompts),
        }
        if name := request_id.get():
            line["request_id"] = name
        return to_json({**getattr(record, FIELDS, {}), **line}).decode()


class LogRing(logging.Handler):
    """Keeps the last lines, without their fields. ``written``: how many there were so far. Any thread may log."""

    def __init__(self, size: int = KEPT_LINES) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=size)
        self.written = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = LogLine(
                time=record.created,
                level=level_of(record.levelno),
                logger=record.name,
                message=told(record),
                request_id=request_id.get(),
            )
        except Exception:
            self.handleError(record)
            return
        self._lines.append(line)
        self.written += 1

    def since(self, number: int) -> tuple[list[LogLine], int]:
        """Of the lines after the first ``number`` those that are kept, and how many there were so far."""
        self.acquire()
        try:
            kept, written = list(self._lines), self.written
        finally:
            self.release()
        return kept[max(0, number - (written - len(kept))) :], written


def set_up_logging(level: str, form: LogFormat, stream: TextIO, *, prompts: bool = False) -> LogRing:
    """Have what is logged written to a stream, and kept in the ring that is returned: there from ``info`` on, whatever
    the level of the stream is. Replaces what was set up before."""
    formatter = JsonFormatter(prompts=prompts) if form == "json" else TextFormatter(prompts=prompts)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.setLevel(level.upper())
    ring = LogRing()
    logging.basicConfig(level=level.upper(), handlers=[handler, ring], force=True)
    logging.getLogger("millstream").setLevel(min(logging.INFO, handler.level))
    return ring


def _printable(text: str) -> str:
    """Without control characters, which a terminal would obey."""
    lines = text.split("\n")
    shown = ["".join(each if each.isprintable() else ascii(each)[1:-1] for each in line) for line in lines]
    return "\n    ".join(shown)
