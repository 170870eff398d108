"""Whose request it is. Authentication sets ``state.tenant`` of the ASGI scope; without it all share one tenant."""

from __future__ import annotations

from starlette.types import Scope


def tenant_of(scope: Scope) -> str:
    """The tenant of a request; stored answers and prefix caches of tenants never meet."""
    return str(scope.get("state", {}).get("tenant", ""))
