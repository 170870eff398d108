"""The ASGI application: routes of all surfaces over one provider."""

from __future__ import annotations

from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from millstream.ir.provider import Provider
from millstream.server.admin.side import Operator, OperatorSide
from millstream.server.answers import AnswerRoute, PlainExchange
from millstream.server.chat import ChatRoutes
from millstream.server.docs.routes import DocsRoutes
from millstream.server.embeddings import EmbeddingRoutes
from millstream.server.errors import on_http_exception
from millstream.server.health import EngineHealth, Health, HealthRoutes
from millstream.server.info import InfoRoutes
from millstream.server.lifecycle import Lifecycle
from millstream.server.metrics import Metrics
from millstream.server.middleware import RequestFrame
from millstream.server.responses import ResponsesRoutes
from millstream.server.settings import Settings
from millstream.server.sqlite_store import SqliteStore
from millstream.server.texts import TextRoutes
from millstream.surfaces import anthropic_messages, openai_completions
from millstream.surfaces.wire import Surface

SURFACES: dict[str, Surface] = {
    "/v1/completions": openai_completions,
    "/v1/messages": anthropic_messages,
}


def create_app(
    provider: Provider,
    engine_health: EngineHealth,
    settings: Settings | None = None,
    *,
    operator: Operator = Operator(),  # noqa: B008  (immutable)
) -> Starlette:
    """The app. ``engine_health`` is the engine's ``stats``. ``app.state.lifecycle`` is the `Lifecycle` to drain,
    ``app.state.requests`` the `Requests` that are open."""
    settings = settings or Settings()
    lifecycle = Lifecycle()
    metrics = Metrics(lambda: lifecycle.open_requests)
    health = Health(engine_health, lifecycle, settings)
    info = InfoRoutes(provider, health, metrics)
    probes = HealthRoutes(health, lambda: [card.id for card in provider.models()])
    store = SqliteStore(settings.store_path, settings.store)
    side = OperatorSide(operator, provider, health, metrics, lifecycle, settings)
    requests = side.requests
    chat = ChatRoutes(provider, requests, settings, store)
    responses = ResponsesRoutes(provider, requests, settings, store)
    routes = [
        Route(
            path,
            AnswerRoute(surface.NAME, partial(PlainExchange, surface, provider, settings.limits), requests, settings),
            methods=["POST"],
        )
        for path, surface in SURFACES.items()
    ]
    texts = TextRoutes(provider, metrics, settings)
    embeddings = EmbeddingRoutes(provider, requests, settings)
    described = [
        *chat.routes(),
        *routes,
        *embeddings.routes(),
        *responses.routes(),
        *texts.routes(),
        *info.routes(),
        *probes.routes(),
        *side.routes(),
    ]
    app = Starlette(
        routes=[*described, *DocsRoutes(described).routes()],
        middleware=_middleware(lifecycle, settings),
        exception_handlers={HTTPException: on_http_exception},
    )
    app.router.redirect_slashes = False
    app.state.lifecycle = lifecycle
    app.state.requests = requests
    return app


def _middleware(lifecycle: Lifecycle, settings: Settings) -> list[Middleware]:
    frame = Middleware(RequestFrame, lifecycle=lifecycle, settings=settings)
    if not settings.allow_origins:
        return [frame]
    from millstream.server.cors import Cors

    cors = Middleware(
        Cors,
        allow_origins=settings.allow_origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("x-request-id", "request-id", "retry-after", "x-millstream-warning"),
    )
    return [cors, frame]
