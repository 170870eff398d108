"""A server that plays the operator's API from a script: what it tells is set, what it is asked is noted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from millstream.admin.views import LogLine, RequestDetail, Snapshot

Body = dict[str, Any]


def problem(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error in the OpenAI envelope."""
    return JSONResponse({"error": {"message": message, "type": "x", "code": "x", "param": None}}, status, headers)


def frame(event: str, data: bytes) -> bytes:
    """One server-sent event."""
    return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"


class Script:
    """``refuse``: answers in place of the real ones, by the begin of a path. ``calls``: method, path and body of what
    was asked for and changes something. ``answers``: chunks of each chat in turn, the last one stays; one every
    ``pace`` seconds."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.details: dict[str, RequestDetail] = {}
        self.wires: dict[str, list[str]] = {}
        self.logs: list[LogLine] = []
        self.answers: list[list[Body | str]] = []
        self.refuse: dict[str, Callable[[], Response]] = {}
        self.calls: list[tuple[str, str, Body]] = []
        self.headers: list[dict[str, str]] = []
        self.pace = 0.0
        self.hold_wire = False
        self.hold_answer = asyncio.Event()
        self.hold_answer.set()
        self.changed = asyncio.Condition()

    async def tell(self, *snapshots: Snapshot) -> None:
        """Send these to all who follow."""
        async with self.changed:
            self.snapshots += snapshots
            self.changed.notify_all()

    async def log(self, *lines: LogLine) -> None:
        """Send these to all who read the log."""
        async with self.changed:
            self.logs += lines
            self.changed.notify_all()

    def app(self) -> Starlette:
        """The app that plays it."""
        get, post = ["GET"], ["POST"]
        return Starlette(
            routes=[
                Route("/v1/events", self._guarded(self._events), methods=get),
                Route("/v1/admin/logs", self._guarded(self._logs), methods=get),
                Route("/v1/admin/requests/{id}", self._guarded(self._detail), methods=get),
                Route("/v1/admin/requests/{id}/wire", self._guarded(self._wire), methods=get),
                Route("/v1/admin/requests/{id}/{verb}", self._guarded(self._act), methods=post),
                Route("/v1/admin/models/{verb:path}", self._guarded(self._act), methods=post),
                Route("/v1/chat/completions", self._guarded(self._chat), methods=post),
            ]
        )

    def _guarded(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            self.headers.append(dict(request.headers))
            for path, refusal in self.refuse.items():
                if request.url.path.startswith(path):
                    return refusal()
            response: Response = await handler(request)
            return response

        return answer

    async def _events(self, _: Request) -> Response:
        return _stream(self._following(self.snapshots, "snapshot"))

    async def _logs(self, _: Request) -> Response:
        return _stream(self._following(self.logs, "log"))

    async def _following(self, items: list[Any], event: str) -> AsyncIterator[bytes]:
        sent = 0
        yield b": here\n\n"
        while True:
            while sent < len(items):
                yield frame(event, msgspec.json.encode(items[sent]))
                sent += 1
            async with self.changed:
                await self.changed.wait()

    async def _detail(self, request: Request) -> Response:
        detail = self.details.get(request.path_params["id"])
        return Response(msgspec.json.encode(detail)) if detail else problem(404, "There is no such request.")

    async def _wire(self, request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for piece in self.wires.get(request.query_params["surface"], []):
                yield piece.encode()
            if self.hold_wire:
                await asyncio.Event().wait()

        return _stream(pieces())

    async def _act(self, request: Request) -> Response:
        body = await request.body()
        self.calls.append((request.method, request.url.path, json.loads(body) if body else {}))
        return Response(status_code=204)

    async def _chat(self, request: Request) -> Response:
        self.calls.append((request.method, request.url.path, await request.json()))
        chunks = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

        async def pieces() -> AsyncIterator[bytes]:
            for chunk in chunks:
                if chunk == "hold":
                    await self.hold_answer.wait()
                else:
                    data = chunk if isinstance(chunk, str) else json.dumps(chunk)
                    yield f"data: {data}\n\n".encode()
                    await asyncio.sleep(self.pace)

        return _stream(pieces())


def chunk(reason: str | None = None, **delta: Any) -> Body:
    """A ``chat.completion.chunk``."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def usage(prompt: int, completion: int) -> Body:
    """The chunk that tells the usage."""
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


def _stream(pieces: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(pieces, media_type="text/event-stream")


class _Uvicorn(uvicorn.Server):
    """Without uvicorn's signal handling; tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


@contextlib.asynccontextmanager
async def playing(script: Script, port: int = 0) -> AsyncIterator[str]:
    """Serve it in this event loop until the block ends, on a free port or a given one; its address."""
    sock = socket.socket()
    # A test may hold a given port while nobody listens.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT if port else socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    config = uvicorn.Config(script.app(), log_config=None, lifespan="off", access_log=False, ws="none")
    server = _Uvicorn(config)
    task = asyncio.ensure_future(server.serve(sockets=[sock]))
    await server.listening.wait()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await task
        for connection in list(server.server_state.connections):
            connection.transport.abort()  # its event loop lives on, and so would its streams
        sock.close()
