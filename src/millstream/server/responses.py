"""The routes of the Responses surface: answers that may continue stored ones and are stored themselves."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from millstream.ir.deltas import Error
from millstream.ir.errors import ApiError, invalid
from millstream.ir.provider import DeltaStream, Provider
from millstream.ir.request import ChatRequest
from millstream.server.admin.registry import Requests
from millstream.server.answers import AnswerRoute
from millstream.server.decoding import decoded
from millstream.server.keeping import Kept, save
from millstream.server.settings import Settings
from millstream.server.store import AnswerStore, StoredAnswer
from millstream.server.stored import StoredRoutes
from millstream.server.tenants import Terms
from millstream.server.truncation import stream_truncated
from millstream.surfaces import responses as surface
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.responses import ResponsesEncoder, ResponsesOptions
from millstream.surfaces.wire import Call, Limits, Surface, WireOptions

PATH = "/v1/responses"
NOT_SUPPORTED = {
    "compact": "conversations are not compacted",
    "input_tokens": "the tokens of a conversation are told by /tokenize",
}
"""Paths of OpenAI that would else look like a response's id, and why they are refused."""


class ResponsesRoutes:
    """Create, retrieve, list input, delete; cancel is refused, as nothing runs in the background."""

    def __init__(self, provider: Provider, requests: Requests, settings: Settings, store: AnswerStore) -> None:
        self._provider = provider
        self._requests = requests
        self._settings = settings
        self._store = store
        self._stored = StoredRoutes(store, "response", missing=_not_found, deleted=_deleted, order="desc")

    def routes(self) -> list[Route]:
        """What to mount."""
        return [
            Route(PATH, AnswerRoute(surface.NAME, self._exchange, self._requests, self._settings), methods=["POST"]),
            *(Route(f"{PATH}/{name}", self.not_supported, methods=["POST"]) for name in NOT_SUPPORTED),
            Route(PATH + "/{id}", self.retrieve, methods=["GET"]),
            Route(PATH + "/{id}", self._stored.delete, methods=["DELETE"]),
            Route(PATH + "/{id}/input_items", self._stored.input, methods=["GET"]),
            Route(PATH + "/{id}/cancel", self.cancel, methods=["POST"]),
        ]

    def _exchange(self, terms: Terms) -> ResponsesExchange:
        return ResponsesExchange(self._provider, self._store, self._settings.limits, terms)

    async def not_supported(self, request: HttpRequest) -> Response:
        """A 404 that names the path, for `NOT_SUPPORTED`."""
        path = request.url.path
        why = NOT_SUPPORTED[path.rpartition("/")[2]]
        raise ApiError(f"{request.method} {path} is not supported: {why}.", code="not_supported", status=404)

    async def retrieve(self, request: HttpRequest) -> Response:
        """The response as it was sent."""
        if request.query_params.get("stream", "false").lower() not in ("false", "0", ""):
            raise invalid(
                "'stream' is not supported: a finished response cannot be streamed again.",
                param="stream",
                code="unsupported_parameter",
            )
        return await self._stored.retrieve(request)

    async def cancel(self, request: HttpRequest) -> Response:
        """Only background responses can be cancelled, and there are none."""
        await self._stored.body(request)
        raise invalid("Only responses made with background: true can be cancelled.", param="id")


class ResponsesExchange:
    """`POST /v1/responses`: it may continue stored answers, and may be kept."""

    def __init__(self, provider: Provider, store: AnswerStore, limits: Limits, terms: Terms) -> None:
        self._provider = provider
        self._store = store
        self._limits = limits
        self._terms = terms
        self._tenant = terms.tenant
        self._surface: Surface = surface

    @property
    def surface(self) -> Surface:
        return self._surface

    async def decode(self, body: bytes) -> Call:
        """The call, with what it needs of the store."""
        parsed = await decoded(len(body), surface.parse, body, self._limits)
        history = []
        if parsed.previous_response_id is not None:
            found = await self._store.history(self._tenant, parsed.previous_response_id)
            if isinstance(found, str):
                raise surface.previous_response_not_found(found)
            history = found
        stored = await self._store.find_items(self._tenant, parsed.references)
        size = len(body) + sum(map(len, history)) * 64
        call = await decoded(size, surface.build, parsed, self._limits, history=history, stored=stored)
        options = call.options
        assert isinstance(options, ResponsesOptions)
        self._options = options
        self._encoder = ResponsesEncoder(options, write=options.stream)
        self._surface = _Prepared(self._encoder)
        return replace(call, request=self._terms.applied(call.request))

    async def submit(self, call: Call) -> DeltaStream:
        request = call.request
        assert isinstance(request, ChatRequest)
        if self._options.truncate:
            return await stream_truncated(self._provider, request)
        return await self._provider.stream(request)

    def follow(self, stream: DeltaStream) -> DeltaStream:
        return Kept(stream, self._keep) if self._options.store else stream

    async def _keep(self) -> None:
        encoder = self._encoder
        if not encoder.finished:
            return
        encoder.stored = True
        response = encoder.response()
        answer = StoredAnswer(
            id=encoder.id,
            tenant=self._tenant,
            kind="response",
            body=to_json(response),
            previous=self._options.previous,
            input=self._options.input_items,
            output=tuple(item for item in response["output"] if not _half_a_call(item)),
        )
        # That it was not kept is told in the answer.
        encoder.stored = await save(self._store, answer)

    async def whole(self, stream: DeltaStream) -> bytes | Error:
        """The response object: what the events would have told, so that log probabilities stay with their text."""
        problem: Error | None = None
        async for delta in stream:
            self._encoder.encode(delta)
            if isinstance(delta, Error):
                problem = delta
        self._encoder.end()
        return problem or to_json(self._encoder.response())


class _Prepared:
    """The surface of one response, whose encoder is there already: the store reads from it what was sent."""

    NAME = surface.NAME
    FIELD_NAMES = surface.FIELD_NAMES
    decode = staticmethod(surface.decode)
    encode_answer = staticmethod(surface.encode_answer)
    encode_error = staticmethod(surface.encode_error)

    def __init__(self, encoder: ResponsesEncoder) -> None:
        self._encoder = encoder

    def stream_encoder(
        self, options: WireOptions, *, response_id: str | None = None, created: int | None = None
    ) -> ResponsesEncoder:
        return self._encoder


def _half_a_call(item: dict[str, Any]) -> bool:
    """Its arguments are cut: a conversation that goes on must not hold it."""
    return item["type"] in ("function_call", "custom_tool_call") and item["status"] == "incomplete"


def _not_found(name: str) -> ApiError:
    return ApiError(f"Response with id {name[:128]!r} not found.", status=404)


def _deleted(name: str) -> bytes:
    return to_json({"id": name, "object": "response", "deleted": True})
