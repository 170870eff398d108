"""Sizes as people read them everywhere: decimal units, as disks and package indexes have them."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB")
_WITH_A_DECIMAL = 3
"""From gigabytes on: a tenth of one counts."""


def size(count: float) -> str:
    """Bytes: ``950 B``, ``23 kB``, ``98 MB``, ``1.3 GB``. What would be rounded to 1000 goes into the next unit."""
    amount, at = max(0.0, float(count)), 0
    while amount >= 999.5 and at < len(_UNITS) - 1:
        amount, at = amount / 1000, at + 1
    return f"{amount:.{1 if at >= _WITH_A_DECIMAL else 0}f} {_UNITS[at]}"
