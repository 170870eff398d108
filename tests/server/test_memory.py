"""When freed memory goes back to the system."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive

from millstream.ir.errors import ApiError
from millstream.server import memory
from millstream.server.memory import LARGE_BYTES, MemoryKeeper, is_large
from millstream.server.reading import ReadingRoom, body_decoded


@pytest.mark.parametrize(
    ("headers", "large"),
    [
        ([], False),
        ([(b"content-length", b"%d" % (LARGE_BYTES - 1))], False),
        ([(b"content-length", b"%d" % LARGE_BYTES)], True),
        ([(b"content-length", b"9" * 5000)], True),
        ([(b"content-length", b"x")], False),
        ([(b"transfer-encoding", b"chunked")], True),
    ],
)
def test_what_is_large(headers: list[tuple[bytes, bytes]], large: bool) -> None:
    assert is_large({"headers": headers}) is large


async def test_a_burst_costs_one_call_and_the_next_burst_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "DELAY_SECONDS", 0.01)
    calls: list[int] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def trim() -> None:
        calls.append(1)
        loop.call_soon_threadsafe(done.set)

    keeper = MemoryKeeper(trim)
    for burst in (1, 2):
        for _ in range(5):
            keeper.give_back()
        await asyncio.wait_for(done.wait(), 60)
        done.clear()
        assert len(calls) == burst


def body_of(size: int) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * size, "more_body": False}

    return receive


async def test_a_full_room_takes_small_bodies_only() -> None:
    room = ReadingRoom(100_000)
    with room.reading({"type": "http"}, body_of(100_000)) as (scope, large):
        await large()
        with room.reading({"type": "http"}, body_of(100)) as (_, small):
            await small()
            with room.reading({"type": "http"}, body_of(101)) as (_, other), pytest.raises(ApiError) as refused:
                await other()
            assert (refused.value.status, room.held) == (429, 100_100)
        body_decoded(scope)
        assert room.held == 0
        with room.reading({"type": "http"}, body_of(101)) as (_, other):
            await other()
            assert room.held == 101
    assert room.held == 0
