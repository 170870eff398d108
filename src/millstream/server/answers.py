"""The route of every surface: body in, stream or folded answer out.

What differs between surfaces is an `Exchange`; how clients leave, how failures are told and what is measured is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from millstream.ir.deltas import Error
from millstream.ir.errors import ApiError
from millstream.ir.fold import collect
from millstream.ir.guard import problem_of
from millstream.ir.provider import DeltaStream, Provider
from millstream.server.admin.entry import Entry, clock
from millstream.server.admin.registry import Requests
from millstream.server.body import ClientGone, read_body
from millstream.server.decoding import decoded
from millstream.server.errors import error_response, internal_error
from millstream.server.leaving import opened, until_gone
from millstream.server.lifecycle import shutting_down
from millstream.server.reading import body_decoded
from millstream.server.settings import Settings
from millstream.server.tenants import Terms, terms_of
from millstream.surfaces.sse import sse_response
from millstream.surfaces.wire import Call, Limits, Surface, in_words_of

WARNING_LENGTH = 1000
"""Characters of warnings that a response's header carries at most."""


class Exchange(Protocol):
    """One request and its answer. The order of calls is `decode`, `submit`, `follow`, and `whole` unless streamed."""

    @property
    def surface(self) -> Surface:
        """How the answer is written."""
        ...

    async def decode(self, body: bytes) -> Call:
        """Raises `ApiError`."""
        ...

    async def submit(self, call: Call) -> DeltaStream:
        """Raises `ApiError`: the request is refused, nothing was queued."""
        ...

    def follow(self, stream: DeltaStream) -> DeltaStream:
        """The stream as it is sent: whoever keeps answers reads along here."""
        ...

    async def whole(self, stream: DeltaStream) -> bytes | Error:
        """The body of the answer that is not streamed, or what ended it."""
        ...


class PlainExchange:
    """An answer that nothing keeps."""

    def __init__(self, surface: Surface, provider: Provider, limits: Limits, terms: Terms) -> None:
        self.surface = surface
        self._provider = provider
        self._limits = limits
        self._terms = terms

    async def decode(self, body: bytes) -> Call:
        call = await decoded(len(body), self.surface.decode, body, self._limits)
        self._options = call.options
        return replace(call, request=self._terms.applied(call.request))

    async def submit(self, call: Call) -> DeltaStream:
        return await self._provider.stream(call.request)

    def follow(self, stream: DeltaStream) -> DeltaStream:
        return stream

    async def whole(self, stream: DeltaStream) -> bytes | Error:
        answer = await collect(stream)
        return answer.error or self.surface.encode_answer(answer, self._options)


class AnswerRoute:
    """An ASGI endpoint that answers one wire format. ``exchange`` makes the exchange of a request on some terms."""

    def __init__(
        self, name: str, exchange: Callable[[Terms], Exchange], requests: Requests, settings: Settings
    ) -> None:
        self._name = name
        self._exchange = exchange
        self._requests = requests
        self._metrics = requests.metrics
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._settings
        terms = terms_of(scope, settings)
        exchange = self._exchange(terms)
        call: Call | None = None
        try:
            body = await read_body(scope, receive, limit=settings.max_body_bytes, seconds=settings.body_seconds)
            since = clock()
            call = await until_gone(receive, exchange.decode(body))
            del body
            body_decoded(scope)
            terms.reserve(call.request)
            entry = self._requests.begin(self._name, call.request, since=since, streamed=call.options.stream)
            source = terms.metered(await self._submitted(entry, exchange, call, receive), call.request)
        except ClientGone:
            self._metrics.request(self._name, "cancelled")
            raise
        except ApiError as error:
            self._metrics.request(self._name, "refused" if error.status < 500 else "failed")
            error = in_words_of(exchange.surface, terms.told(error), call)
            await error_response(error, exchange.surface)(scope, receive, send)
            return
        except Exception:
            self._metrics.request(self._name, "failed")
            raise
        send = warned(send, call.warnings)
        stream = exchange.follow(self._requests.answering(entry, source))
        if call.options.stream:
            response = sse_response(
                stream,
                surface=exchange.surface,
                options=call.options,
                keep_alive_seconds=settings.keep_alive_seconds,
            )
            await response(scope, receive, send)
        else:
            await (await _whole(exchange, stream, receive))(scope, receive, send)

    async def _submitted(self, entry: Entry, exchange: Exchange, call: Call, receive: Receive) -> DeltaStream:
        """The stream of an entry's request, which leaves if there is none."""
        call = replace(call, request=entry.named(call.request))
        try:
            return await opened(receive, entry.running(exchange.submit(call)))
        except BaseException as problem:
            self._requests.fail(entry, problem)
            raise


async def _whole(exchange: Exchange, stream: DeltaStream, receive: Receive) -> Response:
    """The folded answer, or the failure that ended it."""
    surface = exchange.surface
    try:
        answer = await until_gone(receive, exchange.whole(stream))
    except asyncio.CancelledError:
        return error_response(shutting_down(), surface)
    finally:
        await stream.aclose()
    if isinstance(answer, bytes):
        return Response(answer, media_type="application/json")
    if not 400 <= answer.status <= 599:
        return error_response(internal_error(), surface)
    return error_response(problem_of(answer), surface)


def warned(send: Send, warnings: Sequence[str]) -> Send:
    """A ``send`` that tells the client by header what of its request was left out."""
    if not warnings:
        return send
    text = "; ".join(warnings)[:WARNING_LENGTH]
    header = (b"x-millstream-warning", ascii(text)[1:-1].encode())

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), header]
        await send(message)

    return sending
