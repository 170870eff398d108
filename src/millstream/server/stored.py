"""The routes of answers that were kept, the same on every surface that keeps some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from millstream.ir.errors import ApiError
from millstream.server.pages import page_query
from millstream.server.replies import json_response
from millstream.server.store import AnswerStore, Kind
from millstream.server.tenants import tenant_of
from millstream.surfaces.openai_common import list_body


class StoredRoutes:
    """Retrieve, delete and list the input of stored answers of one kind. Each route's path has an ``id``."""

    def __init__(
        self,
        store: AnswerStore,
        kind: Kind,
        *,
        missing: Callable[[str], ApiError],
        deleted: Callable[[str], bytes],
        order: Literal["asc", "desc"],
    ) -> None:
        """``missing`` is the error for an unknown id, ``deleted`` the body that confirms a deletion, ``order`` that of
        the input unless the client asks for another."""
        self._store = store
        self._kind = kind
        self._missing = missing
        self._deleted = deleted
        self._order = order

    def found(self, name: str, body: bytes | None) -> bytes:
        """The body of the answer ``name``; raises the surface's error if there is none."""
        if body is None:
            raise self._missing(name)
        return body

    async def body(self, request: HttpRequest) -> bytes:
        """The stored answer that the path names."""
        name = request.path_params["id"]
        return self.found(name, await self._store.load(tenant_of(request.scope), self._kind, name))

    async def retrieve(self, request: HttpRequest) -> Response:
        """The answer as it was sent."""
        return json_response(await self.body(request))

    async def delete(self, request: HttpRequest) -> Response:
        """Forget an answer."""
        name = request.path_params["id"]
        if not await self._store.delete(tenant_of(request.scope), self._kind, name):
            raise self._missing(name)
        return json_response(self._deleted(name))

    async def input(self, request: HttpRequest) -> Response:
        """What the answer was an answer to, page by page."""
        name = request.path_params["id"]
        query = page_query(request.query_params, order=self._order)
        page = await self._store.input_items(tenant_of(request.scope), self._kind, name, query)
        if page is None:
            raise self._missing(name)
        return json_response(list_body(page.items, [item["id"] for item in page.items], more=page.more))
