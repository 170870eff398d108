"""The route of embeddings."""

from __future__ import annotations

from starlette.routing import Route

from millstream.ir.deltas import Usage
from millstream.ir.errors import ApiError
from millstream.ir.provider import EmbeddingProvider, Embeddings, Provider
from millstream.ir.request import EmbeddingRequest
from millstream.server.admin.entry import clock
from millstream.server.admin.registry import Requests
from millstream.server.decoding import decoded
from millstream.server.metering import estimated_tokens
from millstream.server.replies import Reply, ReplyRoute
from millstream.server.settings import Settings
from millstream.server.tenants import Terms
from millstream.surfaces import openai_embeddings

PATH = "/v1/embeddings"


class EmbeddingRoutes:
    """`POST /v1/embeddings`."""

    def __init__(self, provider: Provider, requests: Requests, settings: Settings) -> None:
        self._provider = provider
        self._requests = requests
        self._settings = settings

    def routes(self) -> list[Route]:
        """What to mount."""
        route = ReplyRoute(openai_embeddings.NAME, self.embed, self._requests.metrics, self._settings)
        return [Route(PATH, route, methods=["POST"])]

    async def embed(self, body: bytes, terms: Terms) -> Reply:
        since = clock()
        call = await decoded(len(body), openai_embeddings.decode, body)
        if not isinstance(self._provider, EmbeddingProvider):
            raise ApiError("What answers here makes no embeddings.", code="embeddings_unsupported", status=501)
        request = terms.applied(call.request)
        terms.reserve(request)
        made = await self._made(self._provider, request, since, terms)
        terms.charge(made.prompt_tokens)
        return openai_embeddings.encode(made, call), ()

    async def _made(
        self, provider: EmbeddingProvider, request: EmbeddingRequest, since: float, terms: Terms
    ) -> Embeddings:
        entry = self._requests.begin(openai_embeddings.NAME, request, since=since)
        try:
            made = await entry.running(provider.embed(entry.named(request)))
        except BaseException as problem:
            self._requests.fail(entry, problem)
            if entry.cancelled or not isinstance(problem, ApiError) or problem.status >= 500:
                # It may have run, and tells of its tokens only at its end.
                terms.charge(estimated_tokens(request))
            raise
        entry.count(Usage(prompt_tokens=made.prompt_tokens))
        self._requests.leave(entry, "finished")
        return made
