"""Honest parameters: every request field is honoured, refused by name, or ignored by a documented rule.

A surface declares its fields in one table. `check_fields` holds a request against it before anything is decoded, and
the same table is printed in the documentation, so the two cannot drift apart.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from millstream.ir.errors import invalid

Status = Literal["honoured", "refused", "ignored"]


class Field(msgspec.Struct, frozen=True):
    """One request field. A refused field still passes with a value of ``neutral``: it asks for what happens anyway."""

    name: str
    status: Status
    note: str
    neutral: tuple[Any, ...] = ()


def honoured(name: str, note: str) -> Field:
    """A field that does what ``note`` says."""
    return Field(name, "honoured", note)


def refused(name: str, note: str, *neutral: object) -> Field:
    """A field that is a 400, whose reason is ``note``."""
    return Field(name, "refused", note, neutral)


def ignored(name: str, note: str) -> Field:
    """A field that changes nothing of the answer, for the reason of ``note``."""
    return Field(name, "ignored", note)


FieldTable = Mapping[str, Field]


_SURFACES: dict[str, FieldTable] = {}
"""The tables of the surfaces that answer, by what they are called; filled as their modules are imported."""


def field_table(fields: Iterable[Field], *, surface: str | None = None) -> FieldTable:
    """Index fields by name. ``surface``: whose fields they are, for requests of others that name one of them."""
    table = {field.name: field for field in fields}
    if surface is not None:
        _SURFACES[surface] = table
    return table


def check_fields(raw: Mapping[str, msgspec.Raw], table: FieldTable) -> None:
    """Refuse what the table refuses. JSON ``null`` is the same as an absent field.

    Raises:
        ApiError: 400 that names the field (unknown fields all at once, with the nearest known name).
    """
    unknown = [name for name, value in raw.items() if name not in table and bytes(value) != b"null"]
    if unknown:
        raise invalid(_unknown_message(unknown, table), param=unknown[0], code="unknown_parameter")
    for name, value in raw.items():
        field = table.get(name)
        if field is None or field.status != "refused" or bytes(value) == b"null":
            continue
        if not _is_neutral(value, field.neutral):
            raise invalid(f"'{name}' is not supported: {field.note}", param=name, code="unsupported_parameter")


def markdown_table(table: FieldTable) -> str:
    """The table as documentation shows it."""
    rows = ["| field | | |", "|---|---|---|"]
    for field in table.values():
        note = field.note
        if field.neutral:
            neutral = ", ".join(f"`{msgspec.json.encode(value).decode()}`" for value in field.neutral)
            note = f"{note} Accepted: {neutral}."
        rows.append(f"| `{field.name}` | {field.status} | {note} |")
    return "\n".join(rows) + "\n"


def _is_neutral(value: msgspec.Raw, neutral: tuple[Any, ...]) -> bool:
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):  # a number that nothing can hold, nesting without end
        return False
    # A bool is not a number here, although Python says True == 1.
    return any(decoded == item and isinstance(decoded, bool) == isinstance(item, bool) for item in neutral)


def _unknown_message(unknown: list[str], table: FieldTable) -> str:
    shown = ", ".join(repr(name[:64]) for name in unknown[:8])
    noun = "argument" if len(unknown) == 1 else "arguments"
    message = f"Unrecognized request {noun} supplied: {shown}."
    if elsewhere := [surface for surface, fields in _SURFACES.items() if unknown[0] in fields]:
        # It is no misspelling, so nothing near it is suggested, nor a surface that refuses it too.
        taken = [surface for surface in elsewhere if _SURFACES[surface][unknown[0]].status != "refused"]
        taken.sort(key=str.casefold)
        return f"{message} It is a field of {_enumerated(taken)}, not of this request." if taken else message
    known = [name for name, field in table.items() if field.status != "refused"]
    near = difflib.get_close_matches(unknown[0][:64], known, n=1, cutoff=0.75)
    return f"{message} Did you mean '{near[0]}'?" if near else message


def _enumerated(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
