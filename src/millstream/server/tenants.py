"""Whose request it is, and on what terms it is served.

`millstream.server.access` finds the key of a request and leaves it in the ``state`` of its ASGI scope, with ``tenant``,
its id; without keys all share one tenant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace
from starlette.types import Scope

from millstream.ir.errors import ApiError, ModelNotFound
from millstream.ir.provider import DeltaStream, ModelCard
from millstream.ir.request import ChatRequest, CompletionRequest, EmbeddingRequest, Request
from millstream.keys.key import Key
from millstream.keys.ledger import Claim
from millstream.server.metering import Metered, estimated_tokens
from millstream.server.settings import Settings

R = TypeVar("R", ChatRequest, CompletionRequest, ChatRequest | CompletionRequest, EmbeddingRequest)

TENANT = "tenant"
"""State: whose the request is."""

KEY = "key"
"""State: the `Key` of a request."""

CLAIM = "claim"
"""State: what the request holds of its key's limits, a `Claim`; only where it counts."""

STRANGER = "stranger"
"""State: True for a request without a key, on a path that is open to all, of a server that has keys."""


class Terms(msgspec.Struct, frozen=True):
    """What the server adds to a request before it is queued. ``timeout``: for requests that name none. ``key``: whose
    it is; None: there are no keys. ``claim``: what it is charged on."""

    tenant: str = ""
    timeout: float | None = None
    key: Key | None = None
    claim: Claim | None = None

    def applied(self, request: R) -> R:
        """The request as it is queued: of its tenant, within what the key allows.

        Raises:
            ApiError: 404 for a model that the key may not use, as for one that is not there; 403 for a priority above
                the key's class.
        """
        service = request.service
        if service.timeout is None:
            service = replace(service, timeout=self.timeout)
        if self.key is not None:
            service = replace(service, priority=_priority(self.key, service.priority))
        request = replace(request, model=self.model(request.model), tenant=self.tenant, service=service)
        if self.claim is None or isinstance(request, EmbeddingRequest):
            return request
        # By them the tokens of an answer that is broken off are counted.
        return replace(request, output=replace(request.output, token_ids=True))

    def model(self, name: str) -> str:
        """The model that a request is for. Raises `ApiError` (404) if the key may not use it."""
        if self.key is not None and not self.key.may_use(name):
            raise _unseen(name, self.key)
        return name

    def told(self, error: ApiError) -> ApiError:
        """A failure as the key may know it: what else is served is no business of a key for some models."""
        if isinstance(error, ModelNotFound) and self.key is not None and self.key.models:
            return _unseen(error.name, self.key)
        return error

    def visible(self, cards: Iterable[ModelCard]) -> list[ModelCard]:
        """Those models that the key may use."""
        return visible_to(self.key, cards)

    def reserve(self, request: Request | EmbeddingRequest) -> None:
        """Set aside what a request will probably cost, before it is queued. Raises `ApiError` (429)."""
        if self.claim is not None:
            self.claim.reserve(estimated_tokens(request))

    def metered(self, stream: DeltaStream, request: Request) -> DeltaStream:
        """The same stream, charged to the key as it is read."""
        return stream if self.claim is None else Metered(stream, self.claim, request)

    def charge(self, prompt_tokens: int) -> None:
        """Charge an answer that has no tokens of its own."""
        if self.claim is not None:
            self.claim.used(prompt=prompt_tokens, cached=0, completion=0)


def visible_to(key: Key | None, cards: Iterable[ModelCard]) -> list[ModelCard]:
    """Those models that a key may use; without a key, all."""
    return [card for card in cards if key is None or key.may_use(card.id)]


def _unseen(name: str, key: Key) -> ModelNotFound:
    """A 404, the same for what there is not and for what the key may not use."""
    return ModelNotFound(name, f"The models of this key: {', '.join(key.models)}.")


def _priority(key: Key, asked: int | None) -> int:
    if asked is None:
        return key.priority
    if asked < key.best_priority:
        raise ApiError(
            f"priority {asked} is above the class of this key; it may ask for {key.best_priority} and higher numbers.",
            code="priority_not_allowed",
            status=403,
            param="priority",
        )
    return asked


def key_of(scope: Scope) -> Key | None:
    """The key of a request; None: the server has no keys, or the path needs none."""
    key = scope.get("state", {}).get(KEY)
    return key if isinstance(key, Key) else None


def tenant_of(scope: Scope) -> str:
    """The tenant of a request; stored answers and prefix caches of tenants never meet."""
    return str(scope.get("state", {}).get(TENANT, ""))


def is_stranger(scope: Scope) -> bool:
    """Whether a request has no key although there are keys: it is told no more than that the server lives."""
    return scope.get("state", {}).get(STRANGER) is True


def terms_of(scope: Scope, settings: Settings) -> Terms:
    """The terms of a request."""
    claim = scope.get("state", {}).get(CLAIM)
    claim = claim if isinstance(claim, Claim) else None
    return Terms(tenant_of(scope), settings.request_seconds, key_of(scope), claim)
