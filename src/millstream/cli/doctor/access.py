"""Who may use the server: the file of keys, and an address that others reach."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.cli.doctor.findings import Finding, ok, problem, warning
from millstream.cli.doctor.places import check_secret
from millstream.cli.doctor.planned import Planned


def check_access(plan: Planned) -> Iterator[Finding]:
    """Whether `serve` can read its keys, and has some if it listens to others."""
    from millstream.keys.file import KeyFile, KeyFileError, default_keys_path
    from millstream.server.origins import is_loopback

    path = plan.keys_file or default_keys_path()
    try:
        keys, there = KeyFile(path).read(), path.exists()
    except KeyFileError as error:
        yield problem("keys", str(error), "mend it, put a backup in its place, or name another file with --keys-file")
        return
    guarded = there or plan.single_key
    make = "make one: millstream keys create NAME --admin"
    if not guarded and not is_loopback(plan.host):
        yield warning("keys", f"whoever reaches {plan.host} may use the server, as there are no keys", make)
    elif not there and plan.keys_file is not None and not plan.single_key:
        yield warning("keys", f"{path} is not there, so requests need no key", make)
    elif guarded:
        count = f"{len(keys)} in {path}" if there else "the one of serve --api-key"
        yield ok("keys", count)
    yield from check_secret("keys", path)
