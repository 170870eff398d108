"""The operator's routes about models: see them, load, unload, fetch. The desk does it, beside the requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from millstream.admin.views import ModelView
from millstream.ir.errors import ApiError, missing
from millstream.server.body import read_body
from millstream.server.errors import error_response
from millstream.server.replies import json_response
from millstream.server.settings import Settings
from millstream.surfaces.fields import field_table, honoured
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.openai_params import decode_body

PATH = "/v1/admin/models"


class ModelDesk(Protocol):
    """Who has the models. Whatever is asked for is begun, not waited for; the view says where it is.

    All raise `ApiError`: 404 no model of that name, 409 it is in a state in which that cannot be done.
    """

    def views(self) -> list[ModelView]:
        """All models: those that are served, those that are here, those that can be fetched."""
        ...

    async def load(self, name: str) -> ModelView: ...

    async def unload(self, name: str) -> ModelView: ...

    async def pull(self, name: str) -> ModelView: ...

    async def cancel_pull(self, name: str) -> ModelView: ...


class ModelBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None


MODEL_FIELDS = field_table((honoured("model", f"Required; a name of `{PATH}`."),))


class ModelRoutes:
    """`GET /v1/admin/models` and the verbs below it."""

    def __init__(self, desk: ModelDesk, settings: Settings) -> None:
        self._desk = desk
        self._settings = settings

    def routes(self) -> list[Route]:
        """What to mount."""
        desk = self._desk
        verbs = {"load": desk.load, "unload": desk.unload, "pull": desk.pull, "pull/cancel": desk.cancel_pull}
        return [
            Route(PATH, self.models, methods=["GET"]),
            *(Route(f"{PATH}/{verb}", _Verb(act, self._settings), methods=["POST"]) for verb, act in verbs.items()),
        ]

    async def models(self, request: Request) -> Response:
        return json_response(to_json({"data": self._desk.views()}))


class _Verb:
    """An ASGI endpoint: the name of a model in, its view out with a 202."""

    def __init__(self, act: Callable[[str], Awaitable[ModelView]], settings: Settings) -> None:
        self._act = act
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._settings
        try:
            body = await read_body(scope, receive, limit=settings.max_body_bytes, seconds=settings.body_seconds)
            name = decode_body(body, ModelBody, MODEL_FIELDS).model
            if name is None:
                raise missing("model")
            view = await self._act(name)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
        else:
            await json_response(to_json(view), 202)(scope, receive, send)
