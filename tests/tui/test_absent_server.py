"""A server that refuses, hangs, talks nonsense or restarts: a line says so, and the app goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

from starlette.responses import PlainTextResponse, Response, StreamingResponse

from millstream.tui.feed import LONGEST_WAIT_SECONDS, backoff
from tui import demo
from tui.driving import looking, shown
from tui.played_server import Script, frame, playing, problem
from tui.waiting import until


def stream(*pieces: bytes) -> Response:
    return StreamingResponse(iter(pieces), media_type="text/event-stream")


WRONG: list[tuple[Callable[[], Response], str]] = [
    (lambda: problem(401, "Who are you?"), "401: the server wants a key"),
    (lambda: problem(403, "Only from this machine."), "403: Only from this machine."),
    (lambda: problem(500, "It broke."), "500: It broke."),
    (lambda: PlainTextResponse("<html>"), "no event stream but text/plain"),
    (lambda: stream(b"\xff\xfe\x00garbage\n\n"), "the server ended the stream"),
    (lambda: stream(frame("snapshot", b'{"time": "soon"}')), "cannot be read"),
]


async def test_a_line_says_what_is_wrong_and_every_page_stays_usable(tmp_path: Path) -> None:
    script = demo.script(1)
    script.refuse["/"] = WRONG[0][0]
    async with looking(script, tmp_path) as driver:
        for answer, words in WRONG:
            script.refuse["/"] = answer
            await driver.press("ctrl+r")
            await driver.shows(words, "ctrl+r")
        await driver.press("2", "c", "3", "u", "7", "1")
        await driver.shows("cannot be read")
        script.refuse.clear()
        await driver.press("ctrl+r")
        await driver.shows("● ok", "Output")


async def test_the_app_comes_back_when_the_server_does(tmp_path: Path) -> None:
    script = demo.script(2)
    with socket.socket() as holder:  # the port is nobody else's, and nobody listens
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        await comes_and_goes(script, holder.getsockname()[1], tmp_path)


async def comes_and_goes(script: Script, port: int, folder: Path) -> None:
    async with looking(f"http://127.0.0.1:{port}", folder) as driver:
        await driver.shows("no connection (connection refused)")
        for _ in range(2):
            async with playing(script, port):
                await driver.press("ctrl+r")
                await driver.shows("● ok")
            await driver.shows("✖ http://127.0.0.1", "Trying again")
            assert driver.app.state.snapshot is not None  # the last numbers stay
    gaps = [value for value in driver.app.state.history.decode if value is None]
    assert len(gaps) == 2


async def test_a_restarted_server_does_not_repeat_its_log(tmp_path: Path) -> None:
    script = demo.script(1)
    async with playing(script) as url, looking(url, tmp_path) as driver:
        await until(lambda: driver.app.book.count == 8)
        driver.app.book.reopen()
        for line in demo.logs():
            driver.app.book.add(line)
        assert driver.app.book.count == 8
        newer = demo.logs()[0]
        driver.app.book.add(type(newer)(time=demo.NOW + 9, level="info", logger="x", message="new"))
        assert [line.message for line in driver.app.book.after(8)] == ["new"]


def test_waits_grow_and_stay_below_the_longest() -> None:
    assert [backoff(failures) for failures in (1, 2, 3, 4, 5, 50, 5_000)] == [1, 2, 4, 8, 15, 15, 15]
    assert backoff(1, retry_after=5) == 5
    assert backoff(1, retry_after=3_600) == LONGEST_WAIT_SECONDS
    assert backoff(4, retry_after=0) == 8


async def test_a_server_that_says_nothing_does_not_stop_the_app(tmp_path: Path) -> None:
    async with looking(Script(), tmp_path) as driver:
        await driver.shows("○ connecting")
        await driver.press("2", "c", "p", "i", "enter", "3", "l", "u", "7")
        await driver.shows("Everywhere")


async def test_a_server_that_stops_telling_is_not_called_ready(tmp_path: Path) -> None:
    script = demo.script(1)
    async with looking(script, tmp_path, interval=0.2, patience=0.5) as driver:
        await driver.shows("✖ http://127.0.0.1", "no news for ", "what is shown is old")
        assert "● ok · http" not in shown(driver.app)
        telling = asyncio.create_task(tell_on(script))  # it is old again soon
        await driver.shows("● ok · http")
        telling.cancel()


async def tell_on(script: Script) -> None:
    while True:
        await script.tell(demo.snapshot(1))
        await asyncio.sleep(0.1)
