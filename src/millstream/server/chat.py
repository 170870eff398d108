"""The routes of chat completions: answers that are kept if the client asks for it, and what was kept."""

from __future__ import annotations

import time

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from millstream.ir.fold import Answer, Folder
from millstream.ir.provider import DeltaStream, Provider
from millstream.server.admin.registry import Requests
from millstream.server.answers import AnswerRoute, PlainExchange
from millstream.server.body import read_body
from millstream.server.keeping import Kept, save
from millstream.server.pages import page_query
from millstream.server.replies import json_response
from millstream.server.settings import Settings
from millstream.server.store import AnswerStore, Kind, Listing, StoredAnswer
from millstream.server.stored import StoredRoutes
from millstream.server.tenants import Terms, tenant_of
from millstream.surfaces import openai_chat as surface
from millstream.surfaces import openai_chat_stored as stored
from millstream.surfaces.openai_chat_request import ChatOptions
from millstream.surfaces.openai_common import list_body, new_id
from millstream.surfaces.wire import Call, Limits, StreamEncoder, Surface, WireOptions

PATH = "/v1/chat/completions"
KIND: Kind = "chat.completion"


class ChatRoutes:
    """Create, list, retrieve, change the metadata of, delete, list the messages of."""

    def __init__(self, provider: Provider, requests: Requests, settings: Settings, store: AnswerStore) -> None:
        self._provider = provider
        self._requests = requests
        self._settings = settings
        self._store = store
        self._stored = StoredRoutes(
            store, KIND, missing=stored.completion_not_found, deleted=stored.deleted_body, order="asc"
        )

    def routes(self) -> list[Route]:
        """What to mount."""
        return [
            Route(PATH, AnswerRoute(surface.NAME, self._exchange, self._requests, self._settings), methods=["POST"]),
            Route(PATH, self.listed, methods=["GET"]),
            Route(PATH + "/{id}", self._stored.retrieve, methods=["GET"]),
            Route(PATH + "/{id}", self.update, methods=["POST"]),
            Route(PATH + "/{id}", self._stored.delete, methods=["DELETE"]),
            Route(PATH + "/{id}/messages", self._stored.input, methods=["GET"]),
        ]

    def _exchange(self, terms: Terms) -> ChatExchange:
        return ChatExchange(self._provider, self._store, self._settings.limits, terms)

    async def listed(self, request: HttpRequest) -> Response:
        """Stored completions in order of their creation, oldest first unless ``order=desc``."""
        query = request.query_params
        page = await self._store.page(
            tenant_of(request.scope),
            KIND,
            page_query(query, order="asc"),
            model=query.get("model"),
            metadata=stored.metadata_filter(query.multi_items()),
        )
        bodies = [msgspec.Raw(body) for _, body in page.answers]
        return json_response(list_body(bodies, [name for name, _ in page.answers], more=page.more))

    async def update(self, request: HttpRequest) -> Response:
        """Give a stored completion other metadata."""
        settings = self._settings
        name = request.path_params["id"]
        body = await read_body(
            request.scope, request.receive, limit=settings.max_body_bytes, seconds=settings.body_seconds
        )
        changed = await self._store.relabel(tenant_of(request.scope), KIND, name, stored.decode_update(body))
        return json_response(self._stored.found(name, changed))


class ChatExchange(PlainExchange):
    """`POST /v1/chat/completions`: the answer may be kept."""

    def __init__(self, provider: Provider, store: AnswerStore, limits: Limits, terms: Terms) -> None:
        super().__init__(surface, provider, limits, terms)
        self._store = store
        self._id = new_id(surface.ID_PREFIX)
        self._created = int(time.time())

    async def decode(self, body: bytes) -> Call:
        call = await super().decode(body)
        assert isinstance(call.options, ChatOptions)
        self._chat = call.options
        if self._chat.store:
            self.surface = _Named(self.surface, self._id, self._created)
        return call

    def follow(self, stream: DeltaStream) -> DeltaStream:
        if not self._chat.store:
            return stream
        folder = Folder()

        async def keep() -> None:
            answer = folder.answer()
            # Half an answer is none: what an error ended is not kept.
            if answer.error is None and all(choice.finish_reason for choice in answer.choices):
                await save(self._store, self._kept(answer))

        return Kept(stream, keep, see=folder.feed)

    def _kept(self, answer: Answer) -> StoredAnswer:
        options = self._chat
        return StoredAnswer(
            id=self._id,
            tenant=self._terms.tenant,
            kind=KIND,
            body=stored.stored_body(answer, options, completion_id=self._id, created=self._created),
            input=stored.stored_messages(options, self._id),
            listing=Listing(options.model, options.metadata),
        )


class _Named:
    """A surface whose answer has its id before it is written: the store needs the same."""

    def __init__(self, inner: Surface, response_id: str, created: int) -> None:
        self._inner = inner
        self._id = response_id
        self._created = created
        self.NAME = inner.NAME
        self.FIELD_NAMES = inner.FIELD_NAMES
        self.decode = inner.decode
        self.encode_error = inner.encode_error

    def stream_encoder(
        self, options: WireOptions, *, response_id: str | None = None, created: int | None = None
    ) -> StreamEncoder:
        return self._inner.stream_encoder(options, response_id=self._id, created=self._created)

    def encode_answer(
        self, answer: Answer, options: WireOptions, *, response_id: str | None = None, created: int | None = None
    ) -> bytes:
        return self._inner.encode_answer(answer, options, response_id=self._id, created=self._created)
