"""Routes that tell about the server: models, metrics, what it is."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.ir.errors import model_not_found
from millstream.ir.provider import ModelCard, Provider
from millstream.server.dialect import speaks_anthropic, surface_of
from millstream.server.errors import error_response
from millstream.server.health import Health
from millstream.server.metrics import Metrics
from millstream.server.page import page_response, wants_page
from millstream.server.replies import json_response
from millstream.server.tenants import key_of, visible_to
from millstream.surfaces.anthropic_common import model_body, model_list
from millstream.surfaces.openai_common import to_json


class InfoRoutes:
    """Small GET routes; each answers in one round trip to the engine at most."""

    def __init__(self, provider: Provider, health: Health, metrics: Metrics) -> None:
        self._provider = provider
        self._health = health
        self._metrics = metrics

    def routes(self) -> list[Route]:
        """What to mount."""
        return [
            Route("/", self.front, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{model:path}", self.model, methods=["GET"]),
        ]

    async def front(self, request: Request) -> Response:
        """The web page for browsers, an overview for programs."""
        if wants_page(request):
            return page_response(request)
        from millstream import __version__

        paths = {
            "chat": "/v1/chat/completions",
            "completions": "/v1/completions",
            "responses": "/v1/responses",
            "messages": "/v1/messages",
            "embeddings": "/v1/embeddings",
            "models": "/v1/models",
            "health": "/health",
            "ready": "/ready",
            "metrics": "/metrics",
            "docs": "/docs",
        }
        response = _json({"name": "millstream", "version": __version__, "paths": paths})
        response.headers["vary"] = "accept"
        return response

    async def models(self, request: Request) -> Response:
        """In the form of the API that the client speaks."""
        cards = self._visible(request)
        if speaks_anthropic(request.scope):
            return _json(model_list(cards))
        return _json({"object": "list", "data": [_model(card) for card in cards]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        cards = {card.id: card for card in self._visible(request)}
        if name in cards:
            body = model_body if speaks_anthropic(request.scope) else _model
            return _json(body(cards[name]))
        return error_response(model_not_found(name, list(cards)), surface_of(request.scope))

    def _visible(self, request: Request) -> list[ModelCard]:
        return visible_to(key_of(request.scope), self._provider.models())

    async def metrics(self, request: Request) -> Response:
        engines = (await self._health.report()).engines
        text = self._metrics.exposition({model: report.stats for model, report in engines.items()})
        return Response(text, media_type="text/plain; version=0.0.4")


def _model(card: ModelCard) -> dict[str, Any]:
    return {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": card.owned_by,
        "context_length": card.context_length,
        # The name under which vLLM's clients look for the same number.
        "max_model_len": card.context_length,
    }


def _json(value: Any, status: int = 200) -> Response:
    return json_response(to_json(value), status)
