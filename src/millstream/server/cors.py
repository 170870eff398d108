"""Leave for web pages of other origins, where the operator gave it."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send


class Cors(CORSMiddleware):
    """Speaks to allowed origins only; all others are refused further in, in the envelope of their surface."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin is not None and self.is_allowed_origin(origin):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)
