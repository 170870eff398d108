"""`keys`: who may use the server, and how much. A running server sees every change with its next request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from millstream.cli.key_options import Given, KeysFileOption, describing, with_classes

if TYPE_CHECKING:
    from millstream.keys.key import Key

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make, list, change and revoke API keys. Once there is one, every request needs one.",
)


_Name = Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
@describing
def create(
    name: _Name,
    given: Given,
    as_json: _Json = False,
    keys_file: KeysFileOption = None,
) -> None:
    """Make a key and print it. It is shown this once: only its hash is kept."""
    from millstream.keys.key import Key, digest_of, hint_of, new_id, new_token

    token = new_token()
    members = with_classes(given, priority=0, best_priority=min(0, given.get("priority", 0)))
    key = _key(
        Key,
        id=new_id(), name=name, digest=digest_of(token.encode()), hint=hint_of(token), created=time.time(), **members,
    )  # fmt: skip

    def add(keys: tuple[Key, ...]) -> tuple[tuple[Key, ...], Key]:
        if any(other.name == name for other in keys):
            _fail(f"there is a key named {name!r}; revoke it, or rotate it for a new one in its place")
        return (*keys, key), key

    _change(keys_file, add)
    _show_token(token, key, as_json=as_json)


@app.command("list")
def list_(as_json: _Json = False, keys_file: KeysFileOption = None) -> None:
    """List the keys with their limits. What they have used is in `/v1/admin/keys` of the running server."""
    from millstream.keys.file import KeyFile, KeyFileError

    try:
        keys = KeyFile(_path(keys_file)).read()
    except KeyFileError as error:
        _fail(str(error))
    if as_json:
        _print_json([_told(key) for key in keys])
    else:
        _print_table(keys)


@app.command()
def revoke(name: _Name, as_json: _Json = False, keys_file: KeysFileOption = None) -> None:
    """Take a key away. Its requests that are being answered go on; new ones are refused at once."""

    def remove(keys: tuple[Key, ...]) -> tuple[tuple[Key, ...], tuple[Key, int]]:
        key = _named(keys, name)
        kept = tuple(other for other in keys if other is not key)
        return kept, (key, len(kept))

    key, left = _change(keys_file, remove)
    if as_json:
        _print_json({"id": key.id, "name": key.name, "revoked": True})
        return
    print(f"revoked {key.name}")
    if not left:
        _note("There are no keys left, and the server still needs one: remove the keys file to open it to all.")


@app.command()
def rotate(name: _Name, as_json: _Json = False, keys_file: KeysFileOption = None) -> None:
    """Give a key a new token and print it; the old one is refused at once. Name, limits and stored answers stay."""
    from msgspec.structs import replace

    from millstream.keys.key import digest_of, hint_of, new_token

    token = new_token()

    def renew(keys: tuple[Key, ...]) -> tuple[tuple[Key, ...], Key]:
        return _replaced(keys, name, lambda key: replace(key, digest=digest_of(token.encode()), hint=hint_of(token)))

    _show_token(token, _change(keys_file, renew), as_json=as_json)


@app.command()
@describing
def edit(
    name: _Name,
    given: Given,
    new_name: Annotated[
        str | None, typer.Option("--name", metavar="NEW", help="What the key is called from now on.")
    ] = None,
    as_json: _Json = False,
    keys_file: KeysFileOption = None,
) -> None:
    """Change what a key may do; what is not given stays."""
    import msgspec

    named: Given = given if new_name is None else {**given, "name": new_name}

    def change(key: Key) -> Key:
        changed = with_classes(named, priority=key.priority, best_priority=key.best_priority)
        return _key(type(key), **{**msgspec.structs.asdict(key), **changed})

    def apply(keys: tuple[Key, ...]) -> tuple[tuple[Key, ...], Key]:
        if new_name is not None and new_name != name and any(other.name == new_name for other in keys):
            _fail(f"there is a key named {new_name!r}")
        return _replaced(keys, name, change)

    key = _change(keys_file, apply)
    if as_json:
        _print_json(_told(key))
    else:
        _print_table((key,))


def _key(kind: type[Key], **members: Any) -> Key:
    """A key whose members are held to their bounds."""
    import msgspec

    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as error:
        if "$.name" in str(error):
            _fail("a key's name has up to 64 letters, digits, spaces and . _ - @ +, and begins with a letter or digit")
        _fail(str(error))


def _named(keys: tuple[Key, ...], name: str) -> Key:
    for key in keys:
        if name in (key.name, key.id):
            return key
    names = ", ".join(key.name for key in keys) or "none"
    _fail(f"there is no key named {name!r}; there are: {names}")


def _replaced(keys: tuple[Key, ...], name: str, change: Callable[[Key], Key]) -> tuple[tuple[Key, ...], Key]:
    old = _named(keys, name)
    new = change(old)
    return tuple(new if key is old else key for key in keys), new


def _path(given: Path | None) -> Path:
    from millstream.keys.file import default_keys_path

    return given or default_keys_path()


def _change(given: Path | None, change: Callable[[tuple[Key, ...]], tuple[tuple[Key, ...], T]]) -> T:
    from millstream.keys.file import KeyFile, KeyFileError

    try:
        return KeyFile(_path(given)).change(change)
    except KeyFileError as error:
        _fail(str(error))


def _told(key: Key) -> dict[str, Any]:
    """A key as scripts read it: all but its digest."""
    import msgspec

    told = msgspec.structs.asdict(key)
    del told["digest"]
    return told


def _show_token(token: str, key: Key, *, as_json: bool) -> None:
    if as_json:
        _print_json({"key": token, **_told(key)})
    else:
        print(token)
        _note(f"This is the key {key.name!r}. Keep it: it is not shown again.")


_NONE = "–"


def _print_table(keys: tuple[Key, ...]) -> None:
    """Aligned columns, one key a line."""
    from millstream.cli.terminal import has_colour

    header = ("NAME", "KEY", "ADMIN", "CLASS", "RPM", "TPM", "OPEN", "EXPIRES", "MODELS")
    rows = [header, *map(_row, keys)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print(f"\x1b[1m{line}\x1b[0m" if row is header and has_colour(sys.stdout) else line)


def _row(key: Key) -> tuple[str, ...]:
    limits = (key.requests_per_minute, key.tokens_per_minute, key.concurrent)
    expires = _NONE
    if key.expires is not None:
        at = datetime.fromtimestamp(min(key.expires, 2e11), UTC).strftime("%Y-%m-%d %H:%MZ")
        expires = f"{at} (expired)" if key.expired(time.time()) else at
    return (
        key.name,
        f"…{key.hint}",
        "yes" if key.admin else "no",
        f"{key.priority} (best {key.best_priority})",
        *(_NONE if limit is None else str(limit) for limit in limits),
        expires,
        ", ".join(key.models) or "all",
    )


def _print_json(value: Any) -> None:
    import msgspec

    print(msgspec.json.encode(value).decode())


def _note(text: str) -> None:
    from millstream.cli.terminal import note

    note(text)


def _fail(message: str) -> NoReturn:
    from millstream.cli.errors import CliError

    raise CliError(message)
