"""The frame around every request: its id, who may call, the drain gate, the last line of defence, one log line."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.ir.errors import ApiError
from millstream.server.answer_headers import guarded_headers
from millstream.server.body import ClientGone
from millstream.server.dialect import surface_of
from millstream.server.errors import error_response, internal_error
from millstream.server.head import HeadError, check_head
from millstream.server.lifecycle import Lifecycle, shutting_down
from millstream.server.memory import MemoryKeeper, is_large
from millstream.server.origins import check_caller
from millstream.server.paths import is_glance
from millstream.server.reading import ReadingRoom
from millstream.server.settings import Settings
from millstream.server.telemetry.context import traceparent
from millstream.surfaces.wire import request_id as current_request_id

log = logging.getLogger("millstream.server")

OPERATORS = "/v1/admin/"
"""Paths of commands, which are taken also while the server stops: what is still open may have to be ended."""

_SANE_ID = re.compile(rb"(?!(?:.*/)?\.{1,2}(?:/|\Z))(?!.*/wire\Z)[A-Za-z0-9._:/+=-]{1,128}\Z")
"""Operators name requests in paths: an id must stay whole there, which dots for a folder do not in any client."""


class RequestFrame:
    """Pure ASGI, so that nothing stands between a stream and its client."""

    def __init__(self, app: ASGIApp, *, lifecycle: Lifecycle, settings: Settings) -> None:
        self._app = app
        self._lifecycle = lifecycle
        self._settings = settings
        self._memory = MemoryKeeper()
        self._reading = ReadingRoom(settings.max_reading_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = _origin_form(scope)
        request_id = _request_id(scope)
        current_request_id.set(request_id.decode())
        traceparent.set(_traceparent(scope))
        surface = surface_of(scope)
        status = 0
        began = time.perf_counter()

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*guarded_headers(message.get("headers", ())), (b"x-request-id", request_id)]
                if surface is not None:  # Anthropic's name for it
                    message["headers"].append((b"request-id", request_id))
            await send(message)

        try:
            check_head(scope)
            check_caller(scope, hosts=self._settings.allow_hosts, origins=self._settings.allow_origins)
            if self._lifecycle.draining and scope["method"] == "POST" and not scope["path"].startswith(OPERATORS):
                await error_response(shutting_down(), surface)(scope, receive, framed)
            else:
                glance = is_glance(scope["path"])
                entered = self._lifecycle.watching() if glance else self._lifecycle.request()
                with entered, self._reading.reading(scope, receive) as (inside, counted):
                    await self._app(inside, counted, framed)
        except ApiError as error:
            response = error_response(error, surface)
            if isinstance(error, HeadError):
                response.headers["connection"] = "close"
            await response(scope, receive, framed)
        except ClientGone:
            pass
        except asyncio.CancelledError:
            # The end of a drain: the client was told, and uvicorn would log every such request as a failure.
            if not self._lifecycle.draining:
                raise
            if not status:  # it was still being opened
                await error_response(shutting_down(), surface)(scope, receive, framed)
        except Exception:
            log.exception("request %s failed", request_id.decode())
            if status:
                raise  # the answer has begun: the connection must be cut
            await error_response(internal_error(), surface)(scope, receive, framed)
        finally:
            if is_large(scope):
                self._memory.give_back()
            if self._settings.access_log:
                seconds = time.perf_counter() - began
                # Whose line it is, every form of the log tells beside the message.
                log.info("%s %s %d %.3fs", scope["method"], _path(scope), status, seconds)


def _origin_form(scope: Scope) -> Scope:
    """The request with a path for its target. Proxies are sent whole URLs, whose name then stands for ``Host``."""
    scheme, separator, rest = scope.get("raw_path", b"").partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        return scope
    authority, _, path = rest.partition(b"/")
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    return {
        **scope,
        "path": unquote("/" + path.decode("ascii", "replace")),
        "raw_path": b"/" + path,
        "headers": [(b"host", authority), *headers],
    }


def _request_id(scope: Scope) -> bytes:
    """The client's id if it is sane, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.match(value):
            return bytes(value)
    return b"req_" + secrets.token_hex(12).encode()


def _traceparent(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"traceparent":
            return str(value.decode("latin-1"))
    return None


def _path(scope: Scope) -> str:
    # A path may hold anything, a line break too.
    return ascii(scope["path"][:200])[1:-1]
