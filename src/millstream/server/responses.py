"""The routes of the Responses surface: answers that may continue stored ones and are stored themselves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from millstream.ir.deltas import Delta, Error
from millstream.ir.errors import ApiError, invalid, model_not_found
from millstream.ir.guard import problem_of
from millstream.ir.provider import DeltaStream, Provider
from millstream.ir.request import ChatRequest
from millstream.server.answers import until_gone
from millstream.server.body import ClientGone, read_body
from millstream.server.decoding import decoded
from millstream.server.errors import error_response, internal_error
from millstream.server.lifecycle import shutting_down
from millstream.server.metrics import Metrics
from millstream.server.settings import Settings
from millstream.server.store import AnswerStore, StoredAnswer
from millstream.server.tenants import tenant_of
from millstream.server.truncation import stream_truncated
from millstream.surfaces import responses as surface
from millstream.surfaces.openai_common import to_json
from millstream.surfaces.responses import ResponsesEncoder, ResponsesOptions
from millstream.surfaces.sse import sse_response
from millstream.surfaces.wire import Call, WireOptions

log = logging.getLogger("millstream.server")

PATH = "/v1/responses"
WARNING_HEADER = b"x-millstream-warning"


class ResponsesRoutes:
    """Create, retrieve, list input, delete; cancel is refused, as nothing runs in the background."""

    def __init__(self, provider: Provider, metrics: Metrics, settings: Settings, store: AnswerStore) -> None:
        self._provider = provider
        self._metrics = metrics
        self._settings = settings
        self._store = store

    def routes(self) -> list[Route]:
        """What to mount."""
        return [
            Route(PATH, _Create(self._provider, self._metrics, self._settings, self._store), methods=["POST"]),
            *(Route(f"{PATH}/{name}", self.unknown, methods=["POST"]) for name in ("compact", "input_tokens")),
            Route(PATH + "/{id}", self.retrieve, methods=["GET"]),
            Route(PATH + "/{id}", self.delete, methods=["DELETE"]),
            Route(PATH + "/{id}/input_items", self.input_items, methods=["GET"]),
            Route(PATH + "/{id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def unknown(self, request: HttpRequest) -> Response:
        """Paths that would else look like a response's id."""
        where = f"{request.method} {request.url.path}"
        return error_response(ApiError(f"Unknown request URL: {where}.", code="unknown_url", status=404))

    async def retrieve(self, request: HttpRequest) -> Response:
        """The response as it was sent."""
        if request.query_params.get("stream", "false").lower() not in ("false", "0", ""):
            problem = invalid(
                "'stream' is not supported: a finished response cannot be streamed again.",
                param="stream",
                code="unsupported_parameter",
            )
            return error_response(problem)
        name = request.path_params["id"]
        body = await self._store.load(tenant_of(request.scope), "response", name)
        return error_response(_not_found(name)) if body is None else _json(body)

    async def delete(self, request: HttpRequest) -> Response:
        """Forget a response."""
        name = request.path_params["id"]
        if not await self._store.delete(tenant_of(request.scope), "response", name):
            return error_response(_not_found(name))
        return _json(to_json({"id": name, "object": "response", "deleted": True}))

    async def input_items(self, request: HttpRequest) -> Response:
        """The response's own input, page by page, newest first unless ``order=asc``."""
        name = request.path_params["id"]
        try:
            limit, after, descending = _page_of(request)
            page = await self._store.input_items(
                tenant_of(request.scope), name, limit=limit, after=after, descending=descending
            )
        except KeyError:
            return error_response(invalid("after: the response has no such input item.", param="after"))
        except ApiError as error:
            return error_response(error)
        if page is None:
            return error_response(_not_found(name))
        ids = [item["id"] for item in page.items]
        first, last = (ids[0], ids[-1]) if ids else (None, None)
        body = {"object": "list", "data": page.items, "first_id": first, "last_id": last, "has_more": page.more}
        return _json(to_json(body))

    async def cancel(self, request: HttpRequest) -> Response:
        """Only background responses can be cancelled, and there are none."""
        name = request.path_params["id"]
        if await self._store.load(tenant_of(request.scope), "response", name) is None:
            return error_response(_not_found(name))
        return error_response(invalid("Only responses made with background: true can be cancelled.", param="id"))


class _Create:
    """`POST /v1/responses`."""

    def __init__(self, provider: Provider, metrics: Metrics, settings: Settings, store: AnswerStore) -> None:
        self._provider = provider
        self._metrics = metrics
        self._settings = settings
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._settings
        tenant = tenant_of(scope)
        try:
            body = await read_body(scope, receive, limit=settings.max_body_bytes, seconds=settings.body_seconds)
            since = time.perf_counter()
            call = await until_gone(receive, self._decode(body, tenant))
            del body
            source = await until_gone(receive, self._submit(call))
        except ClientGone:
            self._metrics.request(surface.NAME, "cancelled")
            raise
        except ApiError as error:
            self._metrics.request(surface.NAME, "refused" if error.status < 500 else "failed")
            if error.param == "messages":  # the provider's word for what is `input` here
                error.param = "input"
            await error_response(error, surface)(scope, receive, send)
            return
        options = call.options
        assert isinstance(options, ResponsesOptions)
        encoder = ResponsesEncoder(options, write=options.stream)
        measured = self._metrics.measured(source, surface.NAME, 1, since)
        stream = _Stored(measured, encoder, options, tenant, self._store) if options.store else measured
        send = _warning(send, options.warnings)
        if options.stream:
            response = sse_response(
                stream,
                surface=_Prepared(encoder),
                options=options,
                keep_alive_seconds=settings.keep_alive_seconds,
            )
            await response(scope, receive, send)
        else:
            await (await self._whole(stream, encoder, receive))(scope, receive, send)

    async def _decode(self, body: bytes, tenant: str) -> Call:
        """The call, with what it needs of the store."""
        parsed = await decoded(len(body), surface.parse, body)
        history = []
        if parsed.previous_response_id is not None:
            found = await self._store.history(tenant, parsed.previous_response_id)
            if isinstance(found, str):
                raise surface.previous_response_not_found(found)
            history = found
        stored = await self._store.find_items(tenant, parsed.references)
        size = len(body) + sum(map(len, history)) * 64
        call = await decoded(size, surface.build, parsed, self._settings.limits, history=history, stored=stored)
        return Call(msgspec.structs.replace(call.request, tenant=tenant), call.options)

    async def _submit(self, call: Call) -> DeltaStream:
        request, options = call.request, call.options
        assert isinstance(request, ChatRequest)
        assert isinstance(options, ResponsesOptions)
        served = [card.id for card in self._provider.models()]
        if request.model not in served:
            raise model_not_found(request.model, served)
        if options.truncate:
            return await stream_truncated(self._provider, request)
        return await self._provider.stream(request)

    async def _whole(self, stream: DeltaStream, encoder: ResponsesEncoder, receive: Receive) -> Response:
        """The response object, or the failure that ended it."""
        try:
            problem = await until_gone(receive, _drive(stream, encoder))
        except asyncio.CancelledError:
            return error_response(shutting_down(), surface)
        finally:
            await stream.aclose()
        if problem is None:
            return _json(to_json(encoder.response()))
        if not 400 <= problem.status <= 599:
            return error_response(internal_error(), surface)
        return error_response(problem_of(problem), surface)


class _Prepared:
    """The surface of one response, whose encoder is there already: the store reads from it what was sent."""

    NAME = surface.NAME
    decode = staticmethod(surface.decode)
    encode_answer = staticmethod(surface.encode_answer)
    encode_error = staticmethod(surface.encode_error)

    def __init__(self, encoder: ResponsesEncoder) -> None:
        self._encoder = encoder

    def stream_encoder(
        self, options: WireOptions, *, response_id: str | None = None, created: int | None = None
    ) -> ResponsesEncoder:
        return self._encoder


class _Stored:
    """A stream that stores its response at the end: after the encoder saw the last delta, before it tells so."""

    def __init__(
        self,
        stream: DeltaStream,
        encoder: ResponsesEncoder,
        options: ResponsesOptions,
        tenant: str,
        store: AnswerStore,
    ) -> None:
        self._stream = stream
        self._encoder = encoder
        self._options = options
        self._tenant = tenant
        self._store = store
        self._saved = False

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            await self._save()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _save(self) -> None:
        encoder = self._encoder
        if self._saved or not encoder.finished:
            return
        self._saved = encoder.stored = True
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
        try:
            encoder.stored = await self._store.save(answer)
        except Exception:
            # The answer is whole; that it was not kept is told in it.
            log.exception("response %s could not be stored", encoder.id)
            encoder.stored = False


def _half_a_call(item: dict[str, Any]) -> bool:
    """Its arguments are cut: a conversation that goes on must not hold it."""
    return item["type"] in ("function_call", "custom_tool_call") and item["status"] == "incomplete"


async def _drive(stream: DeltaStream, encoder: ResponsesEncoder) -> Error | None:
    """Read a stream to its end; the error that ended it."""
    problem: Error | None = None
    async for delta in stream:
        encoder.encode(delta)
        if isinstance(delta, Error):
            problem = delta
    encoder.end()
    return problem


def _warning(send: Send, warnings: tuple[str, ...]) -> Send:
    """Tell in a header what was left out."""
    if not warnings:
        return send
    log.info("%s", "; ".join(warnings))

    async def warned(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(WARNING_HEADER, warning.encode("latin-1", "replace")) for warning in warnings]
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return warned


def _page_of(request: HttpRequest) -> tuple[int, str | None, bool]:
    """(limit, after, descending) of a list request."""
    query = request.query_params
    limit = query.get("limit", "20")
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= 100):
        raise invalid("limit must be between 1 and 100.", param="limit")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid("order must be asc or desc.", param="order")
    return int(limit), query.get("after") or None, order == "desc"


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _not_found(name: str) -> ApiError:
    return ApiError(f"Response with id {name[:128]!r} not found.", status=404)
