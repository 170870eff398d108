"""Rules for members in their order, of which some may be left out. Grammars of many tools must stay short, so names
are, and what is the same is written once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Member(NamedTuple):
    """``body``: what a member is. ``repeat``: it may come any number of times (and is not required then)."""

    body: str
    required: bool = True
    repeat: bool = False


class Shared:
    """Rules by what they say.

    Args:
        prefix: begins the names of rules that are given none.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._names: dict[str, str] = {}
        self.lines: list[str] = []

    def rule(self, body: str) -> str:
        """The name of a rule with this body."""
        if body not in self._names:
            name = self._names[body] = f"{self._prefix}{len(self._names)}"
            self.lines.append(f"{name}: {body}")
        return self._names[body]


def in_order(name: str, members: Sequence[Member]) -> str:
    """Rules that define ``name``: the members in their order with commas (``comma``) between those that are there.

    Two rules for each place: whether a member stands before it or not. Their number is linear.
    """
    first, later = f"{name}a", f"{name}b"
    lines = [f"{name}: {first}0"]
    for at, (body, required, repeat) in enumerate(members):
        rest = f"{later}{at if repeat else at + 1}"
        skips = [f"|{place}{at + 1}" if not required or repeat else "" for place in (first, later)]
        lines.append(f"{first}{at}: {body} {rest}{skips[0]}")
        lines.append(f"{later}{at}: comma {body} {rest}{skips[1]}")
    return "\n".join([*lines, f'{first}{len(members)}: ""', f'{later}{len(members)}: ""'])


COMMA = 'comma: ws "," ws'
