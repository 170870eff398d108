"""What a check says."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True):
    """One line of the report. ``mend``: what to do; empty if all is well."""

    name: str
    state: State
    text: str
    mend: str = ""


def ok(name: str, text: str) -> Finding:
    return Finding(name, "ok", text)


def warning(name: str, text: str, mend: str) -> Finding:
    """Works, but not as well as it could."""
    return Finding(name, "warning", text, mend)


def problem(name: str, text: str, mend: str) -> Finding:
    """A server would not start, or would fail."""
    return Finding(name, "problem", text, mend)
