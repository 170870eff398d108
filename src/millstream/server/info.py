"""Routes that tell about the server: models, health, metrics, the front page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.engine.protocol import EngineStats
from millstream.ir.errors import ApiError, model_not_found
from millstream.ir.provider import ModelCard, Provider
from millstream.server.dialect import speaks_anthropic, surface_of
from millstream.server.errors import error_response
from millstream.server.lifecycle import Lifecycle
from millstream.server.metrics import Metrics
from millstream.server.settings import Settings
from millstream.surfaces.anthropic_common import model_body, model_list
from millstream.surfaces.openai_common import to_json

EngineHealth = Callable[[], Awaitable[EngineStats]]
"""A round trip to the engine; raises `ApiError` if it is down."""


class InfoRoutes:
    """Small GET routes; each answers in one round trip to the engine at most."""

    def __init__(
        self, provider: Provider, health: EngineHealth, lifecycle: Lifecycle, metrics: Metrics, settings: Settings
    ) -> None:
        self._provider = provider
        self._health = health
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._settings = settings

    def routes(self) -> list[Route]:
        """What to mount."""
        return [
            Route("/", self.front, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{model:path}", self.model, methods=["GET"]),
        ]

    async def front(self, request: Request) -> Response:
        from millstream import __version__

        paths = {
            "chat": "/v1/chat/completions",
            "completions": "/v1/completions",
            "responses": "/v1/responses",
            "messages": "/v1/messages",
            "embeddings": "/v1/embeddings",
            "models": "/v1/models",
            "health": "/health",
            "metrics": "/metrics",
            "docs": "/docs",
        }
        return _json({"name": "millstream", "version": __version__, "paths": paths})

    async def models(self, request: Request) -> Response:
        """In the form of the API that the client speaks."""
        if speaks_anthropic(request.scope):
            return _json(model_list(self._provider.models()))
        return _json({"object": "list", "data": [_model(card) for card in self._provider.models()]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        cards = {card.id: card for card in self._provider.models()}
        if name in cards:
            body = model_body if speaks_anthropic(request.scope) else _model
            return _json(body(cards[name]))
        return error_response(model_not_found(name, list(cards)), surface_of(request.scope))

    async def health(self, request: Request) -> Response:
        """200 if the engine answers and moves, else 503 with the reason."""
        if self._lifecycle.draining:
            return _json({"status": "draining", "open": self._lifecycle.open_requests}, status=503)
        stats = await self._stats()
        if isinstance(stats, str):
            return _json({"status": "unavailable", "reason": stats}, status=503)
        counts = {
            "models": [card.id for card in self._provider.models()],
            "running": stats.running,
            "waiting": stats.waiting,
            "waits": stats.waits,
            "kv_blocks_used": stats.kv_blocks_used,
            "kv_blocks_total": stats.kv_blocks_total,
            "steps": stats.steps,
        }
        if (stats.running or stats.waiting) and stats.idle_seconds > self._settings.stuck_seconds:
            reason = f"The engine has work but made no step for {stats.idle_seconds:.0f} s."
            return _json({"status": "unavailable", "reason": reason, **counts}, status=503)
        return _json({"status": "ok", **counts})

    async def metrics(self, request: Request) -> Response:
        stats = await self._stats()
        text = self._metrics.exposition(None if isinstance(stats, str) else stats)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _stats(self) -> EngineStats | str:
        """A snapshot, or why there is none."""
        try:
            return await asyncio.wait_for(self._health(), self._settings.health_seconds)
        except ApiError as error:
            return error.message
        except TimeoutError:
            return f"The engine did not answer within {self._settings.health_seconds:g} s."


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
    return Response(to_json(value), status_code=status, media_type="application/json")
