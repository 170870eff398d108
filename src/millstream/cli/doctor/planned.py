"""What `serve` would do if its command line said nothing: the doctor looks at that server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from typer.core import TyperGroup

from millstream.cli.configuration.files import ConfigError
from millstream.cli.configuration.group import load_settings
from millstream.cli.configuration.show import effective


class Planned(NamedTuple):
    """``models``: [None] for the default one. ``keys_file``: None for the usual place. ``single_key``: whether there is
    a key beside those of the file."""

    host: str
    port: int
    models: list[str | None]
    keys_file: Path | None
    single_key: bool


def planned(root: TyperGroup, given: str | None) -> Planned:
    """From the environment, the configuration file (``given``: what ``--config`` says) and the defaults. What is wrong
    there counts as not said; `check_places` tells it."""
    try:
        found = load_settings(root, given)
    except ConfigError:
        found = None
    values: dict[str, Any] = {each.option: each.value for each in effective(root, found) if each.command == "serve"}
    port = values["port"]
    return Planned(
        host=str(values["host"]),
        port=port if isinstance(port, int) and 0 <= port < 1 << 16 else 8000,
        models=list(values["models"] or [None]),
        keys_file=Path(values["keys-file"]).expanduser() if values["keys-file"] else None,
        single_key=bool(values["api-key"]),
    )
