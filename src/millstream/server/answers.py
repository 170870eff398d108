"""The route of a surface: body in, stream or folded answer out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from millstream.ir.errors import ApiError
from millstream.ir.fold import collect
from millstream.ir.guard import problem_of
from millstream.ir.provider import DeltaStream, Provider
from millstream.ir.request import Request
from millstream.server.body import ClientGone, read_body
from millstream.server.decoding import decoded
from millstream.server.errors import error_response, internal_error
from millstream.server.lifecycle import shutting_down
from millstream.server.metrics import Metrics
from millstream.server.settings import Settings
from millstream.surfaces.sse import disconnected, sse_response
from millstream.surfaces.wire import Call, Surface

T = TypeVar("T")

WARNING_LENGTH = 1000
"""Characters of warnings that a response's header carries at most."""


class AnswerRoute:
    """An ASGI endpoint that answers one wire format from a provider."""

    def __init__(self, surface: Surface, provider: Provider, metrics: Metrics, settings: Settings) -> None:
        self._surface = surface
        self._provider = provider
        self._metrics = metrics
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._settings
        try:
            body = await read_body(scope, receive, limit=settings.max_body_bytes, seconds=settings.body_seconds)
            since = time.perf_counter()
            call = await until_gone(receive, decoded(len(body), self._surface.decode, body, settings.limits))
            del body
            source = await self._open(call.request, receive)
        except ClientGone:
            self._metrics.request(self._surface.NAME, "cancelled")
            raise
        except ApiError as error:
            self._metrics.request(self._surface.NAME, "refused" if error.status < 500 else "failed")
            await error_response(error, self._surface)(scope, receive, send)
            return
        except Exception:
            self._metrics.request(self._surface.NAME, "failed")
            raise
        send = warned(send, call.warnings)
        stream = self._metrics.measured(source, self._surface.NAME, call.request.choices, since)
        if call.options.stream:
            response = sse_response(
                stream,
                surface=self._surface,
                options=call.options,
                keep_alive_seconds=settings.keep_alive_seconds,
            )
            await response(scope, receive, send)
        else:
            await (await self._whole(stream, call, receive))(scope, receive, send)

    async def _open(self, request: Request, receive: Receive) -> DeltaStream:
        """The provider's stream; one that arrives when nobody waits for it any more is closed."""
        opening = asyncio.ensure_future(self._provider.stream(request))
        try:
            return await until_gone(receive, opening)
        except BaseException:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result().aclose()
            raise

    async def _whole(self, stream: DeltaStream, call: Call, receive: Receive) -> Response:
        """The folded answer, or the failure that ended it."""
        try:
            answer = await until_gone(receive, collect(stream))
        except asyncio.CancelledError:
            return error_response(shutting_down(), self._surface)
        finally:
            await stream.aclose()
        if answer.error is None:
            return Response(self._surface.encode_answer(answer, call.options), media_type="application/json")
        error = answer.error
        if not 400 <= error.status <= 599:
            return error_response(internal_error(), self._surface)
        return error_response(problem_of(error), self._surface)


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


async def until_gone(receive: Receive, work: Awaitable[T]) -> T:
    """Await ``work``, but cancel it as soon as the client leaves. Raises `ClientGone` then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
