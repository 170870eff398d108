"""Plain memory as the arrays of the native core."""

from __future__ import annotations

import math

import numpy as np
import pytest

from millstream.engine.arrays import float32s, float_rows, floats, int32s, int_rows, integers, repeated
from millstream.native import SampleOutput


def test_items_are_of_the_type_that_the_core_reads() -> None:
    kinds = [integers(3), integers(3, "I"), integers(3, "Q"), floats(3), int32s([1, 2]), float32s([1.5])]
    assert [np.asarray(each).dtype.name for each in kinds] == [
        "int32", "uint32", "uint64", "float32", "int32", "float32",
    ]  # fmt: skip
    assert kinds[0].tolist() == [0, 0, 0]
    assert repeated(-1, 3).tolist() == [-1, -1, -1]
    assert (int32s([]).nbytes, float32s([]).nbytes) == (0, 0)


def test_a_value_that_does_not_fit_is_refused_or_infinite() -> None:
    for bad in (1 << 31, -(1 << 31) - 1):
        with pytest.raises(OverflowError):
            int32s([bad])
        with pytest.raises(ValueError, match="format"):
            integers(1)[0] = bad
    assert float32s([1e300, -math.inf]).tolist() == [math.inf, -math.inf]


def test_rows_are_the_same_memory() -> None:
    items, values = int32s(range(6)), floats(6)
    rows = int_rows(items, 3)
    items[4] = 9
    values[0] = 0.5
    assert rows[1:].tolist() == [[3, 9, 5]]
    assert rows[:0].shape == (0, 3)
    assert float_rows(values, 2)[:2].tolist() == [[0.5, 0], [0, 0]]


def test_the_core_writes_where_it_is_told_and_takes_no_other_type() -> None:
    rows = {"top_ids": int_rows(integers(4), 2), "top_logprobs": float_rows(floats(4), 2)}
    SampleOutput(tokens=integers(2), logprobs=floats(2), **rows)
    with pytest.raises(ValueError, match="tokens: expected a C-contiguous int32 array"):
        SampleOutput(tokens=integers(2, "I"), logprobs=floats(2), **rows)
    with pytest.raises(ValueError, match=r"tokens: .*writable"):
        SampleOutput(tokens=integers(2).toreadonly(), logprobs=floats(2), **rows)
