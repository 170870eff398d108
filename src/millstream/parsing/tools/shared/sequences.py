"""Rules for members in their order, of which some may be left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Member(NamedTuple):
    """``body``: its rule's body. ``repeat``: it may come any number of times (and is not required then)."""

    body: str
    required: bool = True
    repeat: bool = False


def in_order(name: str, members: Sequence[Member], separator: str) -> str:
    """Rules that define ``name``: the members in their order with ``separator`` between two that are there.

    Two rules for each place: whether a member stands before it or not. Their number is linear.
    """
    lines = []
    for at, member in enumerate(members):
        lines.append(f"{name}_m{at}: {member.body}")
        rest = f"{name}_b{at}" if member.repeat else f"{name}_b{at + 1}"
        skip = not member.required or member.repeat
        lines.append(f"{name}_a{at}: {name}_m{at} {rest}" + (f" | {name}_a{at + 1}" if skip else ""))
        lines.append(f"{name}_b{at}: {separator} {name}_m{at} {rest}" + (f" | {name}_b{at + 1}" if skip else ""))
    count = len(members)
    return "\n".join([f"{name}: {name}_a0", *lines, f'{name}_a{count}: ""', f'{name}_b{count}: ""'])
