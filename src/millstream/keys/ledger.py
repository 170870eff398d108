"""What each key uses, and whether it may use more.

A request of a key is a `Claim`: it counts as open until it is closed, has tokens reserved before it is queued, and is
charged what it really used while it runs. Everything is in memory: after a restart all limits are full.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from millstream.admin.views import KeyUsage
from millstream.ir.errors import ApiError
from millstream.keys.bucket import Bucket
from millstream.keys.key import Key
from millstream.keys.ring import Keyring

_RETRY_SECONDS = 1.0
"""When an open request ends is not known; to ask again after this is cheap."""


class Room(msgspec.Struct, frozen=True):
    """One limit at a moment: ``limit`` per minute, what ``remaining`` of it, seconds until it is full again."""

    limit: int
    remaining: int
    reset: float


class Standing(msgspec.Struct, frozen=True):
    """The limits of a key at a moment; None: there is none."""

    requests: Room | None = None
    tokens: Room | None = None


class _Account:
    """The use of one key since the server began."""

    def __init__(self) -> None:
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.open = 0
        self.taken = 0
        self.refused = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0

    def fit(self, key: Key, now: float) -> None:
        """Take over the key's limits as they are now."""
        self.requests = _fitted(self.requests, key.requests_per_minute, now)
        self.tokens = _fitted(self.tokens, key.tokens_per_minute, now)

    def turn_away(self, now: float) -> None:
        """Refuse a request that was taken: it counts as one that was not."""
        if self.requests is not None:
            self.requests.take(-1, now)
        self.taken -= 1
        self.refused += 1


def _fitted(bucket: Bucket | None, limit: int | None, now: float) -> Bucket | None:
    if limit is None:
        return None
    if bucket is None:
        return Bucket(limit, now)
    bucket.resize(limit, now)
    return bucket


class Claim:
    """One open request of a key. It lives on the server's event loop; `close` it exactly when its answer has ended."""

    def __init__(self, key: Key, account: _Account, clock: Callable[[], float]) -> None:
        self._key = key
        self._account = account
        self._clock = clock
        self._charged = 0
        self._used = (0, 0, 0)
        self._closed = False

    def reserve(self, tokens: int) -> None:
        """Set tokens aside for a prompt, before its request is queued. More than the limit needs a full bucket.

        Raises:
            ApiError: 429 with the time after which they are there; the request counts for nothing.
        """
        bucket, now = self._account.tokens, self._clock()
        if bucket is None:
            return
        wait = bucket.wait(max(1, tokens), now)
        if wait > 0:
            self._account.turn_away(now)
            raise _limited(self._key, "tokens", bucket.limit, wait)
        self._charge(tokens)

    def used(self, *, prompt: int, cached: int, completion: int) -> None:
        """What the request has used until now takes the place of what was reserved, or told before."""
        account = self._account
        before = self._used
        self._used = (prompt, cached, completion)
        account.prompt_tokens += prompt - before[0]
        account.cached_tokens += cached - before[1]
        account.completion_tokens += completion - before[2]
        self._charge(prompt + completion)

    def generated(self, tokens: int) -> None:
        """The request has used so many tokens more."""
        prompt, cached, completion = self._used
        self.used(prompt=prompt, cached=cached, completion=completion + tokens)

    def close(self) -> None:
        """The request has ended, however: what was reserved and not used is given back."""
        if self._closed:
            return
        self._closed = True
        self._account.open -= 1
        self._charge(self._used[0] + self._used[2])

    def _charge(self, tokens: int) -> None:
        """Have ``tokens`` in all on the key's account."""
        if self._account.tokens is not None:
            self._account.tokens.take(tokens - self._charged, self._clock())
        self._charged = tokens


class Ledger:
    """The accounts of all keys of a ring. ``clock``: seconds, never going back."""

    def __init__(self, ring: Keyring, clock: Callable[[], float] = time.monotonic) -> None:
        self.ring = ring
        self.clock = clock
        self._accounts: dict[str, _Account] = {}

    def admit(self, key: Key) -> Claim:
        """Take a request of a key.

        Raises:
            ApiError: 429 with the time after which one is taken again; the request counts for nothing.
        """
        account, now = self._account(key), self.clock()
        if key.concurrent is not None and account.open >= key.concurrent:
            account.refused += 1
            raise _crowded(key, key.concurrent)
        kinds = ((account.requests, "requests"), (account.tokens, "tokens"))
        limits = [(bucket.wait(1, now), kind, bucket.limit) for bucket, kind in kinds if bucket is not None]
        wait, kind, limit = max(limits, default=(0.0, "", 0))
        if wait > 0:
            account.refused += 1
            raise _limited(key, kind, limit, wait)
        if account.requests is not None:
            account.requests.take(1, now)
        account.open += 1
        account.taken += 1
        return Claim(key, account, self.clock)

    def refused(self, key: Key) -> None:
        """Count a request that the key does not allow."""
        self._account(key).refused += 1

    def standing(self, key: Key) -> Standing:
        """How a key stands with its limits."""
        account, now = self._account(key), self.clock()
        return Standing(_room(account.requests, now), _room(account.tokens, now))

    def usage(self) -> list[KeyUsage]:
        """What each key has used since the server began, keys without any use too."""
        return [self._usage(key) for key in self.ring.keys]

    def _usage(self, key: Key) -> KeyUsage:
        account, now = self._account(key), self.clock()
        return KeyUsage(
            name=key.name,
            priority=key.priority,
            requests=account.taken,
            refused=account.refused,
            open_requests=account.open,
            prompt_tokens=account.prompt_tokens,
            cached_tokens=account.cached_tokens,
            completion_tokens=account.completion_tokens,
            requests_left=None if account.requests is None else account.requests.remaining(now),
            tokens_left=None if account.tokens is None else account.tokens.remaining(now),
        )

    def _account(self, key: Key) -> _Account:
        account = self._accounts.get(key.id)
        if account is None:
            self._forget_revoked()
            account = self._accounts[key.id] = _Account()
        account.fit(key, self.clock())
        return account

    def _forget_revoked(self) -> None:
        known = {key.id for key in self.ring.keys}
        self._accounts = {name: one for name, one in self._accounts.items() if name in known or one.open}


def _room(bucket: Bucket | None, now: float) -> Room | None:
    return None if bucket is None else Room(bucket.limit, bucket.remaining(now), bucket.reset(now))


def _limited(key: Key, kind: str, limit: int, wait: float) -> ApiError:
    # `type` is what OpenAI says of its limits: which of them was reached.
    return ApiError(
        f"Rate limit reached: key {key.name!r} may use {limit} {kind} per minute. Try again in {math.ceil(wait)} s.",
        type=kind,
        code="rate_limit_exceeded",
        status=429,
        retry_after=wait,
    )


def _crowded(key: Key, limit: int) -> ApiError:
    return ApiError(
        f"Rate limit reached: key {key.name!r} may have {limit} requests open at once. Wait until one has ended.",
        type="requests",
        code="concurrent_requests_exceeded",
        status=429,
        retry_after=_RETRY_SECONDS,
    )
