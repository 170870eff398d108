"""A `/v1/events` that says what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from millstream.admin.views import EngineView, KeyUsage, ModelView, Percentiles, RequestView, Snapshot


class PlayedEvents:
    """``snapshot`` is sent again and again; ``refuse``: status and message instead; ``length``: snapshots of one
    connection, then it ends."""

    def __init__(self) -> None:
        self.snapshot = a_snapshot()
        self.refuse: tuple[int, str] | None = None
        self.length: int | None = None
        self.connections = 0
        self.open = 0
        self.keys: list[str | None] = []

    def route(self) -> Route:
        return Route("/v1/events", self.events, methods=["GET"])

    async def events(self, request: Request) -> Response:
        self.connections += 1
        self.keys.append(request.headers.get("authorization"))
        if self.refuse is not None:
            status, message = self.refuse
            error = {"error": {"message": message, "type": "x", "code": None, "param": None}}
            return Response(msgspec.json.encode(error), status_code=status, media_type="application/json")
        return StreamingResponse(self._frames(), media_type="text/event-stream")

    async def _frames(self) -> AsyncIterator[bytes]:
        self.open += 1
        try:
            sent = 0
            while self.length is None or sent < self.length:
                sent += 1
                yield b": alive\n\nevent: snapshot\ndata: " + msgspec.json.encode(self.snapshot) + b"\n\n"
                await asyncio.sleep(0.02)
        finally:
            self.open -= 1


def a_snapshot() -> Snapshot:
    """A server at work."""
    now = 1_800_000_000.0
    return Snapshot(
        time=now,
        version="9.9.9",
        status="ready",
        uptime_seconds=7265,
        open_requests=3,
        decode_tokens_per_second=41.26,
        prompt_tokens_per_second=512.0,
        first_token=Percentiles(p50=0.212, p95=1.5, p99=2.25),
        inter_token=Percentiles(p50=0.0243, p95=0.031, p99=0.062),
        engines=[
            EngineView(
                model="tiny", status="ready", isa="avx512vnni", threads=2, running=2, waiting=1,
                waits={"kv_cache": 1}, kv_blocks_used=3, kv_blocks_total=8, prefix_hit_ratio=0.4,
                resident_bytes=312_000_000,
            )
        ],
        requests=[
            RequestView(
                id="req_1", key="team-a", surface="messages", model="tiny", state="decode", prompt_tokens=1200,
                completion_tokens=87, began=now - 4.2, tokens_per_second=20.5,
            ),
            RequestView(
                id="req_2", surface="chat_completions", model="tiny", state="queued", wait_reason="kv_cache",
                prompt_tokens=30, began=now - 1,
            ),
        ],
        models=[
            ModelView(name="tiny", state="loaded", file_bytes=98_000_000, context_length=2048, default=True),
            ModelView(name="large", state="pulling", fetch_bytes=1_000_000_000, fetched_bytes=250_000_000),
        ],
        keys=[KeyUsage(name="team-a", requests=12, refused=1, prompt_tokens=9000, completion_tokens=700)],
    )  # fmt: skip
