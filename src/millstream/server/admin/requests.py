"""`/v1/admin/requests`: what is being answered, one by one, and what an operator can do about it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from millstream.admin.views import WIRE_SURFACES
from millstream.ir.errors import ApiError, invalid
from millstream.ir.provider import Provider
from millstream.server.admin.control import RequestControl, no_control
from millstream.server.admin.entry import Entry
from millstream.server.admin.fields import priority_of
from millstream.server.admin.registry import Requests
from millstream.server.admin.snapshots import Snapshots
from millstream.server.admin.watching import WatchResponse
from millstream.server.admin.wire import SURFACES, wire_view
from millstream.server.body import read_body
from millstream.server.lifecycle import Lifecycle
from millstream.server.replies import json_response
from millstream.server.settings import Settings
from millstream.surfaces.openai_common import to_json

PATH = "/v1/admin/requests"
_ONE = PATH + "/{id:path}"
_BODY_BYTES = 4096


class RequestRoutes:
    """List, look at, watch, cancel, pause, resume, reprioritise."""

    def __init__(
        self, requests: Requests, snapshots: Snapshots, provider: Provider, lifecycle: Lifecycle, settings: Settings
    ) -> None:
        self._requests = requests
        self._snapshots = snapshots
        self._provider = provider
        self._lifecycle = lifecycle
        self._settings = settings

    def routes(self) -> list[Route]:
        """What to mount."""
        commands: dict[str, Callable[[HttpRequest], Coroutine[Any, Any, Response]]] = {
            "cancel": self.cancel,
            "pause": self.pause,
            "resume": self.resume,
            "priority": self.priority,
        }
        return [
            Route(PATH, self.listed, methods=["GET"]),
            Route(_ONE + "/wire", self.wire, methods=["GET"]),
            *(Route(f"{_ONE}/{name}", command, methods=["POST"]) for name, command in commands.items()),
            Route(_ONE, self.one, methods=["GET"]),
        ]

    async def listed(self, request: HttpRequest) -> Response:
        """The open requests."""
        snapshot = await self._snapshots.fresh(0.0)
        return json_response(to_json({"data": snapshot.snapshot.requests}))

    async def one(self, request: HttpRequest) -> Response:
        """An open request, or one of the last that ended, with its timeline."""
        entry = self._found(request)
        if entry.end is None:
            await self._snapshots.fresh(0.0)
        return json_response(to_json(entry.detail()))

    async def wire(self, request: HttpRequest) -> WatchResponse:
        """The answer as another surface would write it."""
        entry = self._open(request)
        surface = request.query_params.get("surface", "chat")
        if surface not in SURFACES:
            raise invalid(f"surface must be one of {', '.join(WIRE_SURFACES)}.", param="surface")
        return WatchResponse(wire_view(entry, surface), self._lifecycle, self._settings.keep_alive_seconds)

    async def cancel(self, request: HttpRequest) -> Response:
        """End a request; its client is told."""
        await self._requests.cancel(self._open(request))
        return Response(status_code=204)

    async def pause(self, request: HttpRequest) -> Response:
        """Have a request rest until it is resumed."""
        entry = self._open(request)
        await self._told(await self._control().hold(entry.facts.handle))
        if not entry.held:
            entry.held = True
            entry.note("paused", "by the operator")
        return Response(status_code=204)

    async def resume(self, request: HttpRequest) -> Response:
        """Have a paused request go on."""
        entry = self._open(request)
        await self._told(await self._control().release(entry.facts.handle))
        if entry.held:
            entry.held = False
            entry.note("resumed", "by the operator")
        return Response(status_code=204)

    async def priority(self, request: HttpRequest) -> Response:
        """Serve a request in another class."""
        body = await read_body(request.scope, request.receive, limit=_BODY_BYTES, seconds=self._settings.body_seconds)
        wanted = priority_of(body)
        entry = self._open(request)
        await self._told(await self._control().reprioritise(entry.facts.handle, wanted))
        if entry.priority != wanted:
            entry.note("priority", f"{entry.priority} to {wanted}")
            entry.priority = wanted
        return Response(status_code=204)

    def _found(self, request: HttpRequest) -> Entry:
        name = request.path_params["id"]
        entry = self._requests.find(name)
        if entry is None:
            raise ApiError(
                f"There is no request {name[:128]!r}, neither open nor among the last that ended.",
                code="request_not_found",
                status=404,
            )
        return entry

    def _open(self, request: HttpRequest) -> Entry:
        entry = self._found(request)
        if entry.end is not None:
            raise ApiError(f"The request {entry.facts.id} has ended ({entry.end}).", code="request_ended", status=409)
        return entry

    def _control(self) -> RequestControl:
        if not isinstance(self._provider, RequestControl):
            raise no_control()
        return self._provider

    async def _told(self, any_sequence: bool) -> None:
        if not any_sequence:
            raise ApiError(
                "The request has nothing in the engine at the moment: its prompt is still being read, or its answer is "
                "complete. Try again if it stays open.",
                code="request_not_running",
                status=409,
            )
