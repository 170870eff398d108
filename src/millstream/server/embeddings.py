"""The route of embeddings: a body in, one JSON answer out; a client that leaves frees what is queued for it."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from millstream.ir.errors import ApiError
from millstream.ir.provider import EmbeddingProvider, Provider
from millstream.server.body import ClientGone, read_body
from millstream.server.errors import error_response
from millstream.server.leaving import until_gone
from millstream.server.metrics import Metrics
from millstream.server.settings import Settings
from millstream.server.tenants import terms_of
from millstream.surfaces import openai_embeddings
from millstream.surfaces.openai_common import to_json

PATH = "/v1/embeddings"


class EmbeddingRoute:
    """An ASGI endpoint."""

    def __init__(self, provider: Provider, metrics: Metrics, settings: Settings) -> None:
        self._provider = provider
        self._metrics = metrics
        self._settings = settings

    def routes(self) -> list[Route]:
        """What to mount."""
        return [Route(PATH, self, methods=["POST"])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._settings
        outcome = "failed"
        try:
            body = await read_body(scope, receive, limit=settings.max_body_bytes, seconds=settings.body_seconds)
            call = openai_embeddings.decode(body)
            if not isinstance(self._provider, EmbeddingProvider):
                raise ApiError("What answers here makes no embeddings.", status=501)
            answer = await until_gone(receive, self._provider.embed(terms_of(scope, settings).applied(call.request)))
            outcome = "ok"
            response = Response(to_json(openai_embeddings.encode(answer, call)), media_type="application/json")
            await response(scope, receive, send)
        except ClientGone:
            outcome = "cancelled"
            raise
        except ApiError as error:
            outcome = "refused" if error.status < 500 else "failed"
            await error_response(error)(scope, receive, send)
        finally:
            self._metrics.request(openai_embeddings.NAME, outcome)
