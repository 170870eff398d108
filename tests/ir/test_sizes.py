"""Sizes for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.sizes import size


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (-1, "0 B"), (0, "0 B"), (999, "999 B"), (1000, "1 kB"), (23_040, "23 kB"), (999_400, "999 kB"),
        (999_600, "1 MB"), (98_362_432, "98 MB"), (999_400_000, "999 MB"), (999_600_000, "1.0 GB"),
        (1_340_000_000, "1.3 GB"), (15_660_000_000, "15.7 GB"), (2 * 10**12, "2.0 TB"), (5 * 10**15, "5000.0 TB"),
    ],
)  # fmt: skip
def test_sizes(count: int, shown: str) -> None:
    assert size(count) == shown


@given(st.floats(0, 9.9e14))
def test_what_is_shown_is_the_number_to_its_last_digit(count: float) -> None:
    amount, unit = size(count).split(" ")
    scale, digit = {"B": (1.0, 1.0), "kB": (1e3, 1.0), "MB": (1e6, 1.0), "GB": (1e9, 0.1), "TB": (1e12, 0.1)}[unit]
    assert abs(float(amount) * scale - count) <= 0.5001 * digit * scale
    assert unit == "TB" or float(amount) < 1000
