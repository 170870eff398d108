"""What each API key has used: ``GET /v1/admin/keys``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.keys.ledger import Ledger
from millstream.server.replies import json_response
from millstream.surfaces.openai_common import to_json


class KeyRoutes:
    """The route over the ledger of a server."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def routes(self) -> list[Route]:
        """What to mount."""
        return [Route("/v1/admin/keys", self.usage, methods=["GET"])]

    async def usage(self, request: Request) -> Response:
        """Every key with its use since the server began and what is left of its limits."""
        return json_response(to_json({"data": self._ledger.usage()}))
