"""A key: what is kept of it, and how its token is made and known again.

A token is 256 random bits, so one round of SHA-256 is enough to store it: a slow password hash makes guessing
expensive, and nobody guesses 256 bits; it would only make every request of an honest client slow.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

import msgspec

from millstream.ir.request import PRIORITY_RANGE

PREFIX = "sk-millstream-"
"""Some clients want ``sk-``; scanners for leaked secrets want a word that is nowhere else."""

SINGLE_NAME = "api-key"
"""Name of the key that `serve --api-key` takes; no key of a file may have it."""

_HINT_LENGTH = 4

Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9](?:[A-Za-z0-9 ._@+-]{0,62}[A-Za-z0-9._@+-])?\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Priority = Annotated[int, msgspec.Meta(ge=PRIORITY_RANGE[0], le=PRIORITY_RANGE[1])]
Limit = Annotated[int, msgspec.Meta(ge=1, le=10**9)]


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a key. ``digest``: SHA-256 of its token. ``hint``: the token's last characters, for people.

    ``admin``: it may watch and steer the server. ``priority``: class of requests that name none;
    ``best_priority``: the lowest number that a request may name. Limits are None where there are none;
    ``models``: those it may use, empty: all. ``created``, ``expires``: seconds since 1970.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9_-]{1,64}\Z")]
    name: Name
    digest: Digest
    hint: Annotated[str, msgspec.Meta(max_length=8)] = ""
    created: float = 0.0
    admin: bool = False
    priority: Priority = 0
    best_priority: Priority = 0
    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    concurrent: Limit | None = None
    models: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], ...] = ()
    expires: float | None = None

    def __post_init__(self) -> None:
        if self.best_priority > self.priority:
            raise ValueError("best_priority must not be above priority")

    def expired(self, now: float) -> bool:
        """Whether it is no longer valid at ``now`` (seconds since 1970)."""
        return self.expires is not None and now >= self.expires

    def may_use(self, model: str) -> bool:
        """Whether the key may ask for a model."""
        return not self.models or model in self.models


def digest_of(token: bytes) -> str:
    """What is kept of a token: its SHA-256 in hexadecimal."""
    return hashlib.sha256(token).hexdigest()


def new_token() -> str:
    """A token of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def hint_of(token: str) -> str:
    """The end of a token, by which its owner knows it."""
    return token[-_HINT_LENGTH:]


def new_id() -> str:
    """A fresh id: whose answers and cached prompts are whose hangs on it, so no two keys ever share one."""
    return "key_" + secrets.token_hex(8)


def single_key(digest: str) -> Key:
    """The key of `serve --api-key`: the operator's own, so it may do everything."""
    return Key(id=SINGLE_NAME, name=SINGLE_NAME, digest=digest, admin=True, best_priority=PRIORITY_RANGE[0])
