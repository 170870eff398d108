"""The route of embeddings."""

from __future__ import annotations

from starlette.routing import Route

from millstream.ir.errors import ApiError
from millstream.ir.provider import EmbeddingProvider, Provider
from millstream.server.decoding import decoded
from millstream.server.metrics import Metrics
from millstream.server.replies import Reply, ReplyRoute
from millstream.server.settings import Settings
from millstream.server.tenants import Terms
from millstream.surfaces import openai_embeddings

PATH = "/v1/embeddings"


class EmbeddingRoutes:
    """`POST /v1/embeddings`."""

    def __init__(self, provider: Provider, metrics: Metrics, settings: Settings) -> None:
        self._provider = provider
        self._metrics = metrics
        self._settings = settings

    def routes(self) -> list[Route]:
        """What to mount."""
        route = ReplyRoute(openai_embeddings.NAME, self.embed, self._metrics, self._settings)
        return [Route(PATH, route, methods=["POST"])]

    async def embed(self, body: bytes, terms: Terms) -> Reply:
        call = await decoded(len(body), openai_embeddings.decode, body)
        if not isinstance(self._provider, EmbeddingProvider):
            raise ApiError("What answers here makes no embeddings.", status=501)
        request = terms.applied(call.request)
        terms.reserve(request)
        embeddings = await self._provider.embed(request)
        terms.charge(embeddings.prompt_tokens)
        return openai_embeddings.encode(embeddings, call), ()
