"""Whose request it is, and on what terms it is served.

Authentication sets ``state.tenant`` of the ASGI scope; without it all share one tenant.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace
from starlette.types import Scope

from millstream.ir.request import ChatRequest, CompletionRequest, EmbeddingRequest
from millstream.server.settings import Settings

R = TypeVar("R", ChatRequest, CompletionRequest, ChatRequest | CompletionRequest, EmbeddingRequest)


class Terms(msgspec.Struct, frozen=True):
    """What the server adds to a request before it is queued. ``timeout``: for requests that name none."""

    tenant: str = ""
    timeout: float | None = None

    def applied(self, request: R) -> R:
        """The request as it is queued. Whatever a tenant is allowed, such as a priority, is bounded here."""
        service = request.service
        if service.timeout is None:
            service = replace(service, timeout=self.timeout)
        return replace(request, tenant=self.tenant, service=service)


def tenant_of(scope: Scope) -> str:
    """The tenant of a request; stored answers and prefix caches of tenants never meet."""
    return str(scope.get("state", {}).get("tenant", ""))


def terms_of(scope: Scope, settings: Settings) -> Terms:
    """The terms of a request."""
    return Terms(tenant_of(scope), settings.request_seconds)
