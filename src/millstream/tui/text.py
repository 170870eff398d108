"""Text of others (model output, log lines, names) made safe to show, and numbers made short to read.

What a server sends goes to the screen only through `plain` and as a `rich.text.Text` or `Content`, never as a string
that Textual would read as markup.
"""

from __future__ import annotations

import math
import time

from rich.text import Text

from millstream.ir.sizes import size as size_of

_CONTROL_PICTURES = 0x2400
_REPLACEMENT = "\ufffd"
# C1 controls are escape sequences of one character; the bidirectional ones reorder what stands beside them; lone
# surrogates cannot be written to a terminal at all.
_HIDDEN = (
    *range(0x80, 0xA0),
    0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF,
    *range(0xD800, 0xE000), *range(0xFFF9, 0xFFFC),
)  # fmt: skip
_SAFE: dict[int, str | None] = {
    **{code: chr(_CONTROL_PICTURES + code) for code in range(0x20)},
    **dict.fromkeys(_HIDDEN, _REPLACEMENT),
    0x7F: "\u2421",
    0x09: "    ",
    0x0A: "\n",
    0x0D: None,
}
_SAFE_LINE = {**_SAFE, 0x0A: "\u240a"}


def plain(text: str) -> str:
    """``text`` without anything a terminal would obey: control characters become their pictures. Newlines stay."""
    return text.translate(_SAFE)


def line(text: str, width: int | None = None) -> str:
    """`plain` on one line, cut to ``width`` characters with an ellipsis."""
    # Cut first: a server may send megabytes for a cell.
    cut = text if width is None else text[: width + 1]
    safe = cut.translate(_SAFE_LINE)
    return safe if width is None or len(safe) <= width else safe[: max(0, width - 1)] + "…"


def cell(text: str, width: int | None = None, style: str = "", *, right: bool = False) -> Text:
    """One table cell; strings of others must never be given to a table as they are (it reads markup)."""
    return Text(line(text, width), style=style, justify="right" if right else "left", no_wrap=True, end="")


def count(value: int) -> str:
    """``950``, ``12.3k``, ``4.5M``: at most six characters, whatever the number is."""
    if abs(value) >= 10**12:
        return "≫" if value > 0 else "≪"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.1f}{unit}"
    return str(value)


def plural(value: int, thing: str) -> str:
    """``1 line``, ``12.3k lines``."""
    return f"{count(value)} {thing}{'' if value == 1 else 's'}"


def rate(value: float | None) -> str:
    """Tokens per second: three figures are all that a reader compares."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.1f}" if abs(value) < 99.95 else count(round(value))


def size(value: int) -> str:
    """Bytes as they are written everywhere, in at most eight characters."""
    return "≫" if value >= 999 * 10**12 else size_of(value)


def share(part: int, whole: int) -> float | None:
    """``part / whole``; None where that says nothing."""
    if whole <= 0 or part < 0:
        return None
    return 1.0 if part >= whole else part / whole


def seconds(value: float | None) -> str:
    """A duration as latencies are read: ``12 ms``, ``1.25 s``."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 9999.5:
        return "≫"
    if abs(value) < 0.00995:
        return f"{value * 1000:.1f} ms"
    if abs(value) < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if abs(value) < 999.5 else f"{value:.0f} s"


def age(value: float) -> str:
    """A long duration: ``42s``, ``3m 05s``, ``2h 07m``, ``4d 03h``."""
    if not math.isfinite(value):
        return "–"
    whole = min(max(0, int(value)), 10**10)
    for unit, small, large, below in ((86400, 3600, "d", "h"), (3600, 60, "h", "m"), (60, 1, "m", "s")):
        if whole >= unit:
            return f"{whole // unit}{large} {whole % unit // small:02d}{below}"
    return f"{whole}s"


def percent(part: float | None) -> str:
    """A share of one."""
    return "–" if part is None or not math.isfinite(part) else f"{100 * min(max(part, -9.0), 9.0):.0f}%"


def clock(when: float) -> str:
    """Local time of day of a time since 1970; dashes for what is none."""
    return _local("%H:%M:%S", when)


def moment(when: float) -> str:
    """Local date and time, without the year."""
    return _local("%d %b %H:%M", when)


def _local(form: str, when: float) -> str:
    try:
        return time.strftime(form, time.localtime(when))
    except (OverflowError, ValueError, OSError):
        return "--:--:--"
