"""The web page: `/` for browsers, and its files below `/assets`."""

from __future__ import annotations

import re

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.web.files import PAGE, POLICY, PageFile, page_files

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # Asked again each time, so that a page never mixes files of two versions; unchanged ones are a 304.
    "cache-control": "no-cache",
}

_NEVER = re.compile(r"q\s*=\s*0(\.0*)?")
"""The parameter of a media range by which a client says that it does not take it."""


class PageRoutes:
    """The page's own files. A name is looked up in a table: none reaches the file system."""

    def routes(self) -> list[Route]:
        """What to mount."""
        return [Route("/assets/{file:path}", self.file, methods=["GET"])]

    async def file(self, request: Request) -> Response:
        name = request.path_params["file"]
        found = page_files().get(name)
        if found is None or name == PAGE:
            raise HTTPException(404)
        return _response(found, request)


def wants_page(request: Request) -> bool:
    """Whether a client is a browser that shows pages: it names HTML among what it takes. Programs, which take anything
    or JSON, get JSON."""
    for part in request.headers.get("accept", "").split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if kind == "text/html":
            return not any(_NEVER.fullmatch(parameter) for parameter in parameters)
    return False


def page_response(request: Request) -> Response:
    """The page itself. What is at its address depends on ``Accept``, which caches are told."""
    response = _response(page_files()[PAGE], request)
    response.headers["vary"] = "accept"
    return response


def _response(file: PageFile, request: Request) -> Response:
    headers = {**_HEADERS, "etag": file.etag}
    if _has(request.headers.get("if-none-match", ""), file.etag):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def _has(condition: str, etag: str) -> bool:
    """Whether an ``If-None-Match`` names a version; proxies that compress make the tag a weak one."""
    tags = [tag.strip().removeprefix("W/") for tag in condition.split(",")]
    return etag in tags or tags == ["*"]
