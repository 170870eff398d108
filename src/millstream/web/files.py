"""The files of the page, read once from the package: what is served is a table in memory, not a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

PAGE = "index.html"

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of every file: what a model writes can neither run nor call anybody."""


class PageFile(msgspec.Struct, frozen=True):
    """``etag``: changes with the content, and only with it; with its quotes."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """All files by their names, such as ``index.html`` and ``chat/view.js``."""
    return dict(_files(resources.files(__package__).joinpath("static"), ""))


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, PageFile]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        name = prefix + entry.name
        if entry.is_dir():
            yield from _files(entry, f"{name}/")
            continue
        media_type = MEDIA_TYPES.get("." + entry.name.rpartition(".")[2])
        if media_type is not None:  # an editor's leftovers are not part of the page
            content = entry.read_bytes()
            yield name, PageFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
