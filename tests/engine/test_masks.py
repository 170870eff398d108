"""Masks beside the forward pass: every row is right, and none that cannot be had holds up or harms the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from millstream.engine.masks import MaskJob, MaskThreads, StepMasks
from millstream.engine.protocol import SamplingParams, TokenRequest
from millstream.scheduler.sequence import Constraint, Sequence
from support.waiting import PATIENCE

WORDS = 3


class Writes:
    """A constraint whose mask is a number, written by a function."""

    finished = False
    error = None

    def __init__(self, number: int, before: Callable[[], object] = lambda: None) -> None:
        self._number = number
        self._before = before

    def mask(self, out: NDArray[np.uint32]) -> None:
        self._before()
        out.fill(self._number)

    def forced(self) -> int | None:
        return None

    def advance(self, token: int) -> None:
        raise AssertionError("nothing was sampled")


class Panic(BaseException):
    """What a library may raise that is no Exception."""


def fails() -> None:
    raise Panic


def sequence(constraint: Constraint | None) -> Sequence:
    return Sequence(TokenRequest("a", [1], SamplingParams(), 1), 0, constraint)


def masks_of(count: int, processors: int = 4, patience: float = 20.0) -> StepMasks:
    return StepMasks(count, WORDS * 32, processors=processors, patience=patience)


def found(masks: StepMasks, rows: int) -> list[int | None]:
    """The number that each row's mask is made of; None: it has none."""
    return [None if index < 0 else int(masks.bits[index][0]) for index in masks.of_rows[:rows]]


@contextmanager
def never() -> Iterator[Callable[[], object]]:
    """A wait that ends with the test."""
    event = threading.Event()
    try:
        yield event.wait
    finally:
        event.set()


@pytest.mark.parametrize("processors", [1, 3, 16])
def test_every_constrained_row_gets_its_mask(processors: int) -> None:
    masks = masks_of(40, processors)
    for step in range(5):
        numbers = [None if row % 3 == step % 3 else row + step for row in range(40)]
        rows = [sequence(None if number is None else Writes(number)) for number in numbers]
        assert masks.begin(rows)
        masks.finish()
        assert found(masks, 40) == numbers
    assert not masks.begin([sequence(None)] * 4)
    masks.finish()
    assert found(masks, 4) == [None] * 4


def test_a_step_without_grammars_takes_no_memory_for_masks() -> None:
    masks = masks_of(40)
    masks.begin([sequence(None)] * 40)
    assert len(masks.bits) == 0


def test_a_mask_that_fails_is_lost_alone(caplog: pytest.LogCaptureFixture) -> None:
    masks = masks_of(4)
    rows = [sequence(Writes(5)), sequence(Writes(6, fails)), sequence(Writes(7))]
    masks.begin(rows)
    bits, of_rows = masks.bits, masks.of_rows.tolist()
    masks.finish()
    assert [int(bits[index][0]) for index in (masks.of_rows[0], masks.of_rows[2])] == [5, 7]
    assert not bits[masks.of_rows[1]].any()
    assert masks.of_rows[1] != of_rows[1]
    lost = rows[1].constraint
    assert lost is not None
    assert lost.error == "its mask could not be made"
    assert not lost.finished


class Stuck:
    """In the place of the clock: time is up for a job once all its threads, or all rows that are left, stand still. On
    a slow machine, the others may not be through before any number of seconds."""

    def __init__(self, wait: Callable[[], object], threads: int) -> None:
        self._wait = wait
        self._threads = threads
        self._still: list[int] = []

    def stand_still(self) -> None:
        self._still.append(threading.get_ident())
        self._wait()

    def time_is_up(self, job: MaskJob) -> bool:
        """As `MaskJob.wait`, negated."""
        end = time.monotonic() + PATIENCE
        while job._left:
            assert time.monotonic() < end
            if self._still and len(self._still) in (self._threads, job._left):
                self._still.clear()
                return True
            time.sleep(0.001)
        return False


@pytest.mark.parametrize("stuck", [1, 2, 5])
def test_masks_that_never_come_end_their_sequences_alone(stuck: int, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = masks_of(8, processors=2)
    with never() as forever:
        clock = Stuck(forever, threads=masks._threads._count)
        wait = clock.stand_still
        monkeypatch.setattr(MaskJob, "wait", lambda job, patience: not clock.time_is_up(job))
        rows = [sequence(Writes(row, wait) if row < stuck else Writes(row)) for row in range(8)]
        masks.begin(rows)
        bits = masks.bits
        masks.finish()
        for row, each in enumerate(rows):
            assert each.constraint is not None
            if row < stuck:
                assert each.constraint.error == "its next mask took too long"
                assert not bits[masks.of_rows[row]].any()
            else:
                assert each.constraint.error is None
                assert (bits[masks.of_rows[row]] == row).all()
        assert masks.begin(rows)  # lost ones have a mask again: an empty one
        masks.finish()
        assert found(masks, 8) == [0] * stuck + list(range(stuck, 8))
        assert masks.bits is not bits  # which a late thread may write to


def test_a_thread_that_comes_late_leaves() -> None:
    threads = MaskThreads(1, patience=2.0)
    late = threading.Event()
    with never() as wait:

        def held() -> None:
            wait()
            late.set()

        out = np.zeros((2, WORDS), np.uint32)
        lost = threads.finish(threads.begin([Writes(1, held), Writes(2)], out))
        assert list(lost) == [0]
    assert late.wait(60)
    assert threads.finish(threads.begin([Writes(3), Writes(4)], out)) == {}
    assert out[:, 0].tolist() == [3, 4]


def test_without_a_thread_masks_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    masks = masks_of(2, patience=0.05)
    masks.begin([sequence(Writes(8)), sequence(Writes(9))])
    masks.finish()
    assert found(masks, 2) == [8, 9]
