"""The files of tests that take longest. Parallel workers begin with them, so that none is left for the end."""

from __future__ import annotations

import pytest

HEAVY_FILES: tuple[str, ...] = ()
"""Below ``tests``, the longest first: those of more than some ten seconds of processor time."""

_RANKS = {f"tests/{name}": rank for rank, name in enumerate(HEAVY_FILES)}


def heaviest_first(items: list[pytest.Item]) -> None:
    """Sort tests by their file: the heavy ones in the order of the list, then the others as they were."""
    items.sort(key=lambda item: _RANKS.get(item.nodeid.partition("::")[0], len(_RANKS)))
