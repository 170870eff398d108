"""The ASGI application: routes of all surfaces over one provider."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from millstream.ir.provider import Provider
from millstream.keys.file import KeyFile
from millstream.keys.ledger import Ledger
from millstream.keys.ring import Keyring
from millstream.server.access import Access
from millstream.server.admin.side import Operator, OperatorSide
from millstream.server.admin.snapshots import Sources
from millstream.server.answers import AnswerRoute, PlainExchange
from millstream.server.chat import ChatRoutes
from millstream.server.docs.routes import DocsRoutes
from millstream.server.embeddings import EmbeddingRoutes
from millstream.server.engines import EngineHealth, Engines, OneEngine
from millstream.server.errors import on_http_exception
from millstream.server.health import Health, HealthRoutes
from millstream.server.info import InfoRoutes
from millstream.server.key_routes import KeyRoutes
from millstream.server.lifecycle import Lifecycle
from millstream.server.limit_headers import EXPOSED
from millstream.server.metrics import Metrics
from millstream.server.middleware import RequestFrame
from millstream.server.models import ModelDesk, ModelRoutes
from millstream.server.page import PageRoutes
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
    engines: Engines | EngineHealth,
    settings: Settings | None = None,
    *,
    desk: ModelDesk | None = None,
    layers: Sequence[Middleware] = (),
    operator: Operator = Operator(),  # noqa: B008  (immutable)
) -> Starlette:
    """The app. ``engines``: the only engine's ``stats``, or who has several. ``desk``: what an operator does with
    models. ``layers``: middleware between the frame of every request and the routes. ``app.state.lifecycle`` is the
    `Lifecycle` to drain, ``app.state.ledger`` what keys have used, ``app.state.requests`` the open
    `Requests`.

    Raises:
        KeyFileError: the file of keys cannot be read.
    """
    settings = settings or Settings()
    lifecycle = Lifecycle()
    ledger = Ledger(Keyring(KeyFile(settings.keys_path) if settings.keys_path else None, single=settings.api_key))
    metrics = Metrics(lambda: lifecycle.open_requests, ledger.ring.name_of)
    engines = engines if isinstance(engines, Engines) else OneEngine(provider, engines)
    health = Health(engines, provider.models, lifecycle, settings)
    info = InfoRoutes(provider, health, metrics)
    probes = HealthRoutes(health, provider.models)
    store = SqliteStore(settings.store_path, settings.store)
    sources = Sources(engines.engines, desk.views if desk is not None else None, ledger.usage)
    side = OperatorSide(operator, sources, provider, health, metrics, lifecycle, settings, name_of=ledger.ring.name_of)
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
        *(ModelRoutes(desk, settings).routes() if desk is not None else ()),
        *KeyRoutes(ledger).routes(),
        *PageRoutes().routes(),
        *side.routes(),
    ]
    app = Starlette(
        routes=[*described, *DocsRoutes(described).routes()],
        middleware=[*_middleware(lifecycle, settings, ledger), *layers],
        exception_handlers={HTTPException: on_http_exception},
    )
    app.router.redirect_slashes = False
    app.state.lifecycle = lifecycle
    app.state.ledger = ledger
    app.state.requests = requests
    return app


def _middleware(lifecycle: Lifecycle, settings: Settings, ledger: Ledger) -> list[Middleware]:
    inner = [
        Middleware(RequestFrame, lifecycle=lifecycle, settings=settings),
        Middleware(Access, ledger=ledger, settings=settings),
    ]
    if not settings.allow_origins:
        return inner
    from millstream.server.cors import Cors

    cors = Middleware(
        Cors,
        allow_origins=settings.allow_origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("x-request-id", "request-id", "retry-after", "x-millstream-warning", *EXPOSED),
    )
    return [cors, *inner]
