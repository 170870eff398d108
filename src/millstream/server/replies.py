"""Routes that read a JSON body and answer with one JSON object: nothing is streamed, and leaving stops the work."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from millstream.ir.errors import ApiError
from millstream.server.answers import warned
from millstream.server.body import ClientGone, read_body
from millstream.server.dialect import surface_of
from millstream.server.errors import error_response
from millstream.server.leaving import until_gone
from millstream.server.metrics import Metrics
from millstream.server.settings import Settings
from millstream.server.tenants import Terms, terms_of
from millstream.surfaces.openai_common import to_json

Reply = tuple[dict[str, object], tuple[str, ...]]
"""The body of an answer, and its warnings."""

Handler = Callable[[bytes, Terms], Coroutine[Any, Any, Reply]]
"""What is to be said to a body on some terms. Raises `ApiError`."""


class ReplyRoute:
    """An ASGI endpoint around a handler. ``name``: what metrics call it."""

    def __init__(self, name: str, handler: Handler, metrics: Metrics, settings: Settings) -> None:
        self._name = name
        self._handler = handler
        self._metrics = metrics
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._settings
        terms = terms_of(scope, settings)
        outcome = "failed"
        try:
            body = await read_body(scope, receive, limit=settings.max_body_bytes, seconds=settings.body_seconds)
            reply, warnings = await until_gone(receive, self._handler(body, terms))
            outcome = "ok"
            await json_response(to_json(reply))(scope, receive, warned(send, warnings))
        except ClientGone:
            outcome = "cancelled"
            raise
        except ApiError as error:
            outcome = "refused" if error.status < 500 else "failed"
            await error_response(terms.told(error), surface_of(scope))(scope, receive, send)
        finally:
            self._metrics.request(self._name, outcome)


def json_response(body: bytes, status: int = 200) -> Response:
    """A body that is JSON already."""
    return Response(body, status_code=status, media_type="application/json")
