"""The two routes; the page is one file, its policy allows nothing but its own style and script, by their hashes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from millstream.surfaces.openai_common import to_json


class DocsRoutes:
    """Describes the routes of an app, its own among them."""

    def __init__(self, others: Sequence[BaseRoute]) -> None:
        self._others = others
        self._document: bytes | None = None

    def routes(self) -> list[Route]:
        """What to mount."""
        return [
            Route("/openapi.json", self.openapi, methods=["GET"]),
            Route("/docs", self.page, methods=["GET"]),
        ]

    async def openapi(self, request: Request) -> Response:
        if self._document is None:
            from millstream import __version__
            from millstream.server.docs.openapi import openapi_document  # with a schema for all that is answered

            self._document = to_json(openapi_document([*self._others, *self.routes()], version=__version__))
        return Response(self._document, media_type="application/json")

    async def page(self, request: Request) -> Response:
        page, policy = _page()
        headers = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)


@cache
def _page() -> tuple[str, str]:
    """The page, and its Content-Security-Policy."""
    folder = resources.files(__package__)
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    script = folder.joinpath("page.js").read_text(encoding="utf-8")
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Millstream API</title>\n'
        f'<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n<body>\n'
        f'<main id="page"><noscript>See openapi.json.</noscript></main>\n<script>{script}</script>\n</body>\n</html>\n'
    )
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
