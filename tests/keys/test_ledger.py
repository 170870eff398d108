"""What requests cost their key, however they end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ir.errors import ApiError
from millstream.keys.file import KeyFile
from millstream.keys.key import Key
from millstream.keys.ledger import Ledger
from millstream.keys.ring import Keyring


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def key(name: str = "a", **limits: int) -> Key:
    return Key(id=name, name=name, digest="0" * 64, **limits)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock, tmp_path: Path) -> Ledger:
    """Of a server whose one key is named a."""
    file = KeyFile(tmp_path / "keys.json")
    file.change(lambda keys: ((key(),), None))
    return Ledger(Keyring(file), clock)


def refused(ledger: Ledger, who: Key) -> ApiError:
    with pytest.raises(ApiError) as caught:
        ledger.admit(who)
    assert caught.value.status == 429
    return caught.value


def test_requests_per_minute(ledger: Ledger, clock: Clock) -> None:
    who = key(requests_per_minute=2)
    for _ in range(2):
        ledger.admit(who).close()
    error = refused(ledger, who)
    assert (error.code, error.type, error.retry_after) == ("rate_limit_exceeded", "requests", 30.0)
    clock.now = 29.9
    refused(ledger, who)
    clock.now = 30.0
    ledger.admit(who).close()


def test_open_requests_count_until_they_are_closed(ledger: Ledger) -> None:
    who = key(concurrent=1)
    claim = ledger.admit(who)
    assert refused(ledger, who).code == "concurrent_requests_exceeded"
    claim.close()
    claim.close()
    second = ledger.admit(who)
    refused(ledger, who)
    second.close()


def test_a_refused_request_costs_nothing_but_is_counted(ledger: Ledger) -> None:
    who = key(requests_per_minute=1, concurrent=1)
    claim = ledger.admit(who)
    for _ in range(5):
        refused(ledger, who)
    claim.close()
    (usage,) = ledger.usage()
    assert (usage.requests, usage.refused, usage.open_requests) == (1, 5, 0)


def test_the_wait_is_that_of_the_limit_that_is_there_last(ledger: Ledger, clock: Clock) -> None:
    """Who comes again after it is not told to wait for the other one then."""
    who = key(requests_per_minute=1, tokens_per_minute=60)
    claim = ledger.admit(who)
    claim.used(prompt=160, cached=0, completion=0)
    claim.close()
    error = refused(ledger, who)
    assert (error.type, error.retry_after) == ("tokens", 101.0)
    clock.now = 101.0
    ledger.admit(who).close()
    other = key("b", requests_per_minute=1, tokens_per_minute=6000)
    claim = ledger.admit(other)
    claim.used(prompt=6000, cached=0, completion=0)
    claim.close()
    error = refused(ledger, other)
    assert (error.type, error.retry_after) == ("requests", 60.0)


def test_a_prompt_that_finds_no_room_is_no_request(ledger: Ledger) -> None:
    who = key(requests_per_minute=3, tokens_per_minute=100)
    first = ledger.admit(who)
    first.reserve(50)
    second = ledger.admit(who)
    with pytest.raises(ApiError):
        second.reserve(60)
    second.close()
    assert ledger.standing(who).requests.remaining == 2  # type: ignore[union-attr]
    (usage,) = ledger.usage()
    assert (usage.requests, usage.refused, usage.open_requests) == (1, 1, 1)


def test_what_was_reserved_is_replaced_by_what_was_used(ledger: Ledger) -> None:
    who = key(tokens_per_minute=100)
    claim = ledger.admit(who)
    claim.reserve(40)
    assert ledger.standing(who).tokens.remaining == 60  # type: ignore[union-attr]
    claim.used(prompt=30, cached=10, completion=0)
    claim.generated(5)
    assert ledger.standing(who).tokens.remaining == 65  # type: ignore[union-attr]
    claim.used(prompt=30, cached=10, completion=7)
    claim.close()
    assert ledger.standing(who).tokens.remaining == 63  # type: ignore[union-attr]


def test_what_never_ran_costs_no_tokens(ledger: Ledger) -> None:
    who = key(tokens_per_minute=100)
    claim = ledger.admit(who)
    claim.reserve(100)
    refused(ledger, who)
    claim.close()
    assert ledger.standing(who).tokens.remaining == 100  # type: ignore[union-attr]


def test_a_prompt_above_the_limit_takes_a_full_bucket_and_leaves_a_debt(ledger: Ledger, clock: Clock) -> None:
    who = key(tokens_per_minute=60)
    claim = ledger.admit(who)
    claim.reserve(120)
    claim.used(prompt=120, cached=0, completion=0)
    claim.close()
    assert refused(ledger, who).retry_after == 61.0
    clock.now = 61.0
    other = ledger.admit(who)
    with pytest.raises(ApiError) as caught:
        other.reserve(120)
    assert caught.value.retry_after == 59.0
    other.close()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), max_size=20))
def test_the_account_is_the_sum_of_what_was_used(requests: list[tuple[int, int, bool]]) -> None:
    """Reserved or not, told at once or bit by bit: nothing is charged twice, and nothing is lost."""
    ledger = Ledger(Keyring(single="0" * 64), Clock())
    (who,) = ledger.ring.keys
    who = Key(id=who.id, name=who.name, digest=who.digest, tokens_per_minute=100_000)
    for prompt, completion, bitwise in requests:
        claim = ledger.admit(who)
        claim.reserve(prompt * 2)
        claim.used(prompt=prompt, cached=prompt // 2, completion=0)
        if bitwise:
            for _ in range(completion):
                claim.generated(1)
        claim.used(prompt=prompt, cached=prompt // 2, completion=completion)
        claim.close()
    total = sum(prompt + completion for prompt, completion, _ in requests)
    assert ledger.standing(who).tokens.remaining == 100_000 - total  # type: ignore[union-attr]
    (usage,) = ledger.usage()
    assert usage.prompt_tokens + usage.completion_tokens == total


def test_a_changed_limit_holds_at_once(ledger: Ledger) -> None:
    ledger.admit(key(requests_per_minute=1)).close()
    refused(ledger, key(requests_per_minute=1))
    ledger.admit(key(requests_per_minute=2)).close()
    refused(ledger, key(requests_per_minute=2))
    ledger.admit(key()).close()


def test_accounts_of_revoked_keys_go_when_their_requests_have(ledger: Ledger) -> None:
    claim = ledger.admit(key("gone"))
    ledger.admit(key("b")).close()
    claim.generated(3)
    claim.close()
    assert [usage.name for usage in ledger.usage()] == ["a"]
