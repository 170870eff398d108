"""Limits per minute: what they let through over any stretch of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.keys.bucket import Bucket

LIMITS = st.integers(1, 1000)
STEPS = st.lists(st.tuples(st.floats(0, 90), st.integers(1, 50)), max_size=20)


@given(LIMITS, STEPS)
def test_what_is_let_through_is_a_bucket_and_what_the_time_refills(limit: int, steps: list[tuple[float, int]]) -> None:
    bucket, now = Bucket(limit, 0.0), 0.0
    taken: list[tuple[float, int]] = []
    for pause, amount in steps:
        now += pause
        if amount <= limit and bucket.wait(amount, now) == 0:
            bucket.take(amount, now)
            taken.append((now, amount))
    for first, (began, _) in enumerate(taken):
        total = 0
        for at, amount in taken[first:]:
            total += amount
            assert total <= limit + (at - began) * limit / 60 + 1e-3


@given(LIMITS, st.integers(1, 3000), st.integers(1, 3000))
def test_after_the_time_that_it_tells_there_is_enough(limit: int, used: int, wanted: int) -> None:
    bucket = Bucket(limit, 0.0)
    bucket.take(used, 0.0)
    wait = bucket.wait(wanted, 0.0)
    assert wait < 0.01 or bucket.wait(wanted, wait - 0.01) > 0
    assert bucket.wait(wanted, wait) == 0


@given(LIMITS, st.integers(0, 3000))
def test_it_is_full_when_it_says_so(limit: int, used: int) -> None:
    bucket = Bucket(limit, 0.0)
    bucket.take(used, 0.0)
    assert bucket.remaining(0.0) == max(0, limit - used)
    assert bucket.remaining(bucket.reset(0.0)) == limit


def test_a_debt_is_paid_before_there_is_anything_again() -> None:
    bucket = Bucket(60, 0.0)
    bucket.take(120, 0.0)
    assert bucket.wait(1, 0.0) == 61
    assert bucket.remaining(60.0) == 0
    assert bucket.remaining(61.0) == 1


def test_what_is_given_back_never_makes_more_than_full() -> None:
    bucket = Bucket(10, 0.0)
    bucket.take(4, 0.0)
    bucket.take(-9, 0.0)
    assert bucket.remaining(0.0) == 10


def test_another_limit_keeps_what_was_used() -> None:
    bucket = Bucket(10, 0.0)
    bucket.take(8, 0.0)
    bucket.resize(20, 0.0)
    assert bucket.remaining(0.0) == 12
    bucket.resize(5, 0.0)
    assert (bucket.remaining(0.0), bucket.wait(1, 0.0)) == (0, 48)
