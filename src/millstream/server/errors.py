"""Failures as responses: every status, also those that arise before a route is found, has its surface's envelope."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from millstream.ir.errors import ApiError
from millstream.server.dialect import surface_of
from millstream.surfaces import openai_common
from millstream.surfaces.sse import error_headers
from millstream.surfaces.wire import Surface


def error_response(error: ApiError, surface: Surface | None = None) -> Response:
    """The response of a failure, in the surface's envelope (OpenAI's where no surface is known)."""
    body = openai_common.encode_error(error) if surface is None else surface.encode_error(error)
    response = Response(body, status_code=error.status)
    response.raw_headers.extend(error_headers(error))
    return response


async def on_http_exception(request: Request, exception: Exception) -> Response:
    """404 and 405 of the router."""
    assert isinstance(exception, HTTPException)
    where = f"{request.method} {request.url.path[:200]}"
    allow = ""
    if exception.status_code == 405:
        allow = _allowed(request)
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": f"{allow}, OPTIONS"})
        error = ApiError(f"{where}: the method is not allowed; use {allow}.", code="method_not_allowed", status=405)
    elif exception.status_code == 404:
        error = ApiError(
            f"Unknown request URL: {where}. See /docs for those that exist.", code="unknown_url", status=404
        )
    else:
        error = ApiError(str(exception.detail), status=exception.status_code)
    response = error_response(error, surface_of(request.scope))
    if allow:
        response.headers["allow"] = allow
    return response


def _allowed(request: Request) -> str:
    """The methods of a path over all its routes; the router's own list is of the first that has the path."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    here = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in here for method in route.methods or ()}))


def internal_error() -> ApiError:
    """A 500 that tells nothing of the inside; the log has the rest under the request's id."""
    return ApiError("Internal server error.", type="server_error", code="internal_error", status=500)
