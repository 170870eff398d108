"""The pictures of the documentation: each is shown, described, and not too large."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.pages import ROOT, pages

IMAGES = ROOT / "docs" / "images"
_SHOWN = re.compile(r"!\[(?P<words>[^\]]*)\]\((?P<path>[^)\s#]+)")


def shown(page: Path) -> list[tuple[str, Path]]:
    """The pictures of a page: what is said of each, and its file."""
    text = page.read_text(encoding="utf-8")
    return [(each["words"], (page.parent / each["path"]).resolve()) for each in _SHOWN.finditer(text)]


@pytest.mark.parametrize("page", [page for page in pages() if shown(page)], ids=lambda page: page.name)
def test_they_are_there_and_described(page: Path) -> None:
    for words, path in shown(page):
        assert path.is_file(), path
        assert len(words.split()) >= 4, f"{path.name} is described as {words!r}"


def test_none_is_kept_for_nothing() -> None:
    assert {path for page in pages() for _, path in shown(page)} == set(IMAGES.iterdir())


def test_together_they_are_small() -> None:
    assert sum(path.stat().st_size for path in IMAGES.iterdir()) < 3_000_000
