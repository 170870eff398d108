"""What the client makes of servers, good and bad."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse

from millstream.admin.views import Snapshot
from millstream.tui.client import Server, checked_key, checked_url
from millstream.tui.errors import ServerError
from tui import demo
from tui.played_server import Script, frame, playing, problem


async def first_snapshot(script: Script, key: str | None = None) -> Snapshot:
    """What the events of a script begin with."""
    async with (
        playing(script) as url,
        contextlib.aclosing(Server(url, key)) as server,
        contextlib.aclosing(server.snapshots(1.0)) as snapshots,
    ):
        async for snapshot in snapshots:
            return snapshot
    raise AssertionError("no snapshot")


async def failure_of(answer: Response) -> ServerError:
    """The failure that an answer to the events is."""
    script = Script()
    script.refuse["/v1/events"] = lambda: answer
    with pytest.raises(ServerError) as caught:
        await first_snapshot(script)
    return caught.value


async def test_a_snapshot_comes_as_it_was_told() -> None:
    script = Script()
    script.snapshots = [demo.snapshot()]
    assert await first_snapshot(script) == demo.snapshot()


async def test_the_key_is_sent_as_a_bearer_token_to_that_server_only() -> None:
    script = Script()
    script.snapshots = [demo.snapshot()]
    await first_snapshot(script, "sk-1")
    assert script.headers[0]["authorization"] == "Bearer sk-1"
    stranger = Script()
    async with playing(stranger) as elsewhere:
        script.refuse["/v1/events"] = lambda: RedirectResponse(f"{elsewhere}/v1/events", 307)
        with pytest.raises(ServerError, match="redirects"):
            await first_snapshot(script, "sk-1")
    assert stranger.headers == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (problem(401, "No key."), ["401", "--key", "No key."]),
        (problem(403, "Admin paths answer only this machine."), ["403", "only this machine"]),
        (problem(500, "It broke."), ["500", "It broke."]),
        (problem(503, "The model is being loaded.", {"retry-after": "5"}), ["503", "being loaded"]),
        (PlainTextResponse("Not Found", 404), ["404", "Not Found"]),
        (PlainTextResponse("<html>Bad Gateway</html>", 502), ["502", "no reason given"]),
        (PlainTextResponse("hello"), ["no event stream", "text/plain"]),
        (PlainTextResponse("\x1b[2J\x1b]0;x\x07", 500), ["500", "␛[2J␛]0;x␇"]),
        (StreamingResponse(iter([frame("snapshot", b"{")]), media_type="text/event-stream"), ["cannot be read"]),
        (StreamingResponse(iter([frame("snapshot", b"[]")]), media_type="text/event-stream"), ["cannot be read"]),
        (
            StreamingResponse(iter([frame("snapshot", b"[" * 100_000)]), media_type="text/event-stream"),
            ["cannot be read"],
        ),
        (
            StreamingResponse(
                iter([b"data: " + b"x" * 9_000_000, b"x" * 9_000_000]), media_type="text/event-stream"
            ),
            ["too long"],
        ),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_said_in_a_line(answer: Response, words: list[str]) -> None:
    error = await failure_of(answer)
    assert "\n" not in error.message
    assert [word for word in words if word not in error.message] == []


async def test_how_long_to_wait_is_known() -> None:
    assert (await failure_of(problem(503, "Later.", {"retry-after": "5"}))).retry_after == 5
    assert (await failure_of(problem(503, "Later.", {"retry-after": "soon"}))).retry_after is None


async def test_a_stream_that_breaks_is_told() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b": here\n\n"
        raise RuntimeError("the server dies")

    error = await failure_of(StreamingResponse(broken(), media_type="text/event-stream"))
    assert "the connection broke" in error.message


async def test_nobody_listens() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        server = Server(f"http://127.0.0.1:{sock.getsockname()[1]}")
        with pytest.raises(ServerError, match=r"no connection \(connection refused\)"):
            await server.request("r")
        await server.aclose()


async def test_actions_name_what_they_mean() -> None:
    script = Script()
    async with playing(script) as url, contextlib.aclosing(Server(url)) as server:
        await server.act("r 1?x#y", "pause")
        await server.set_priority("r1", -5)
        await server.model_action("pull/cancel", "m")
    assert script.calls == [
        ("POST", "/v1/admin/requests/r 1%3Fx%23y/pause", {}),
        ("POST", "/v1/admin/requests/r1/priority", {"priority": -5}),
        ("POST", "/v1/admin/models/pull/cancel", {"model": "m"}),
    ]


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("https://llm.example/api", "https://llm.example/api"),
    ],
)
def test_addresses_as_people_write_them(written: str, url: str) -> None:
    assert checked_url(written) == url


@pytest.mark.parametrize(
    "written", ["", "http://", "ftp://x", "http://x:99999", "http://x:port", "http://u:p@x", "http://x/?a=1", "http://[::1"]
)  # fmt: skip
def test_what_is_no_address(written: str) -> None:
    with pytest.raises(ValueError, match="address"):
        checked_url(written)


@pytest.mark.parametrize("written", ["a b", "schlüssel", "a\nb", "a\x00b"])
def test_what_is_no_key(written: str) -> None:
    with pytest.raises(ValueError, match="key"):
        checked_key(written)
