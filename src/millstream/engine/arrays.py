"""Flat arrays that the native core reads and writes.

They are plain memory and not numpy's: to import that takes longer than to load a small model, and to read or write a
single item of its arrays nearly twice the time. Who computes with whole arrays imports it when there is something to
compute: grammars, scores of prompts, embeddings.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Literal

IntFormat = Literal["i", "I", "Q"]
"""int32, uint32, uint64; as in `struct`."""


def integers(count: int, form: IntFormat = "i") -> memoryview[int]:
    """That many zeros."""
    return memoryview(bytearray(count * array(form).itemsize)).cast(form)


def floats(count: int) -> memoryview[float]:
    """That many zeros, float32."""
    return memoryview(bytearray(count * array("f").itemsize)).cast("f")


def int32s(values: Iterable[int]) -> memoryview[int]:
    """An array of these values."""
    return memoryview(array("i", values))


def repeated(value: int, count: int) -> memoryview[int]:
    """An array of int32 that are all the same."""
    return memoryview(array("i", [value]) * count)


def float32s(values: Iterable[float]) -> memoryview[float]:
    """An array of these values, rounded; what is too large for a float32 becomes infinite."""
    return memoryview(array("f", values)).cast("B").cast("f")


def int_rows(items: memoryview[int], width: int) -> memoryview[int]:
    """The same memory as [count, width], whose rows can be sliced; ``items``: int32 or uint32, at least a row."""
    return items.cast("B").cast("I" if items.format == "I" else "i", (len(items) // width, width))


def float_rows(items: memoryview[float], width: int) -> memoryview[float]:
    """As `int_rows`."""
    return items.cast("B").cast("f", (len(items) // width, width))
