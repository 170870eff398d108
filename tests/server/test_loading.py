"""While the model is loaded the server lives, is not ready, and says so on every surface."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from millstream.server.binding import bind
from millstream.server.loading import LoadingServer


async def get(sock: socket.socket, method: str, path: str, **how: object) -> httpx.Response:
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
        return await client.request(method, path, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(("path", "status"), [("/health", 200), ("/ready", 503)])
async def test_probes(path: str, status: int) -> None:
    with bind("127.0.0.1", 0) as sock:
        async with LoadingServer(sock):
            answer = await get(sock, "GET", path)
            head = await get(sock, "HEAD", path)
    assert (answer.status_code, answer.json()["status"]) == (status, "loading")
    assert "loaded" in answer.json()["reason"]
    assert (head.status_code, head.content) == (status, b"")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/models", "/nowhere"])
async def test_everything_else_is_a_503_in_the_words_of_its_surface(path: str) -> None:
    with bind("127.0.0.1", 0) as sock:
        async with LoadingServer(sock):
            answer = await get(sock, "POST", path, content=b"x" * 3_000_000)
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert "loaded" in answer.json()["error"]["message"]
    assert (answer.json().get("type") == "error") == (path == "/v1/messages")


@pytest.mark.parametrize("junk", [b"", b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe\r\n\r\n", b"A" * 70_000])
async def test_junk_ends_the_connection_and_nothing_else(junk: bytes) -> None:
    with bind("127.0.0.1", 0) as sock:
        async with LoadingServer(sock):
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            writer.write(junk)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 60)
            writer.close()
            assert (await get(sock, "GET", "/health")).status_code == 200


async def test_the_socket_is_handed_on() -> None:
    with bind("127.0.0.1", 0) as sock:
        async with LoadingServer(sock):
            pass
        taken = await asyncio.start_server(lambda reader, writer: writer.close(), sock=sock.dup())
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        assert await reader.read() == b""
        writer.close()
        taken.close()
