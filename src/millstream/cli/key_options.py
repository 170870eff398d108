"""What a key may do, as options of `keys create` and `keys edit`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from millstream.cli.shared import shared
from millstream.ir.request import PRIORITY_RANGE

NEVER = float("inf")
NO_LIMIT = 0
"""What `none` on the command line is read as: no key has a limit of 0."""

_MOST = 10**9
_UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN = re.compile(r"(\d{1,6})([mhdw])")


def parse_api_key(text: str) -> str:
    """The digest of a key: the key itself is kept nowhere."""
    from millstream.keys.key import digest_of

    if not text.strip():
        raise typer.BadParameter("it is empty")
    if text != text.strip() or not text.isascii() or not text.isprintable():
        raise typer.BadParameter("a key has visible ASCII characters only")
    return digest_of(text.encode())


def parse_limit(text: str) -> int:
    """A whole number from 1, or ``none`` (`NO_LIMIT`)."""
    if text.lower() == "none":
        return NO_LIMIT
    if text.isascii() and text.isdecimal() and 1 <= int(text[:12]) <= _MOST:
        return int(text)
    raise typer.BadParameter(f"{text!r} is neither a number from 1 to {_MOST} nor none")


def parse_expiry(text: str) -> float:
    """Seconds since 1970 of ``90m``, ``12h``, ``30d``, ``8w`` from now, a date or time (UTC unless it says otherwise),
    or ``never`` (`NEVER`)."""
    if text.lower() == "never":
        return NEVER
    if match := _SPAN.fullmatch(text):
        return time.time() + int(match[1]) * _UNITS[match[2]]
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no time; write 30d, 12h, 2030-01-31 or never") from None


class _Models(NamedTuple):
    """A list of names that typer takes for one value."""

    names: tuple[str, ...]


def parse_models(text: str) -> _Models:
    """Names with commas between them, or ``all`` (none)."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise typer.BadParameter("name one model, several with commas between them, or all")
    return _Models(() if names == ("all",) else names)


KeysFileOption = Annotated[
    Path | None,
    typer.Option(
        "--keys-file", metavar="FILE", envvar="MILLSTREAM_KEYS_FILE",
        help="Where the keys are, if not in the usual place.",
    ),
]  # fmt: skip
ApiKeyOption = Annotated[
    str | None,
    typer.Option(
        "--api-key", metavar="KEY", parser=parse_api_key, envvar="MILLSTREAM_API_KEY",
        help="Every request needs this key, or one of `keys`. Others on this machine see command lines: better set "
        "MILLSTREAM_API_KEY.",
    ),
]  # fmt: skip
_Admin = Annotated[bool | None, typer.Option("--admin/--no-admin", help="May watch and steer the server.")]
_PriorityOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=PRIORITY_RANGE[0],
        max=PRIORITY_RANGE[1],
        help="Class of requests that name none; lower is first.",
    ),
]
_BestOption = Annotated[
    int | None,
    typer.Option(
        "--best-priority", metavar="N", min=PRIORITY_RANGE[0], max=PRIORITY_RANGE[1],
        help="The lowest number that a request may ask for.",
    ),
]  # fmt: skip
_Rpm = Annotated[
    int | None, typer.Option("--rpm", metavar="N", parser=parse_limit, help="Requests per minute, or none.")
]
_Tpm = Annotated[
    int | None,
    typer.Option("--tpm", metavar="N", parser=parse_limit, help="Tokens per minute, of prompts and answers, or none."),
]
_Concurrent = Annotated[
    int | None, typer.Option("--concurrent", metavar="N", parser=parse_limit, help="Requests open at once, or none.")
]
_ModelsOption = Annotated[
    _Models | None,
    typer.Option("--models", metavar="NAME,…", parser=parse_models, help="Models that it may use, or all."),
]
_Expires = Annotated[
    float | None,
    typer.Option("--expires", metavar="WHEN", parser=parse_expiry, help="30d, 12h, 2030-01-31 or never."),
]


Given = dict[str, Any]
"""Members of a key that the command line names."""


def read_given(
    admin: _Admin = None,
    priority: _PriorityOption = None,
    best_priority: _BestOption = None,
    rpm: _Rpm = None,
    tpm: _Tpm = None,
    concurrent: _Concurrent = None,
    models: _ModelsOption = None,
    expires: _Expires = None,
) -> Given:
    """The options as a command line has them."""
    limits = {"requests_per_minute": rpm, "tokens_per_minute": tpm, "concurrent": concurrent}
    others = {"admin": admin, "priority": priority, "best_priority": best_priority}
    given: Given = {name: value for name, value in others.items() if value is not None}
    given |= {name: value or None for name, value in limits.items() if value is not None}
    if models is not None:
        given["models"] = models.names
    if expires is not None:
        given["expires"] = None if expires == NEVER else expires
    return given


describing = shared(read_given, "given")
"""The command with the options of `read_given` in the place of its parameter ``given``."""


def with_classes(given: Given, *, priority: int, best_priority: int) -> Given:
    """With both classes: one that is not given gives way to the one that is."""
    if "priority" in given:
        best_priority = min(best_priority, given["priority"])
    if "best_priority" in given:
        priority = max(priority, given["best_priority"])
    return {"priority": priority, "best_priority": best_priority, **given}
