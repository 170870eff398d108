"""One engine process and the socket to it: start it, exchange messages, notice its end. It lives once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import cast

import msgspec

from millstream.engine.config import EngineConfig
from millstream.engine.messages import Command, Event, FrameReader, Ready, StartFailed, event_decoder, frame
from millstream.engine.protocol import EngineInfo

_STOP_SECONDS = 5.0
_EXIT_SECONDS = 1.0


class EngineStartError(Exception):
    """The engine process could not start; the message is for the person who started it."""


class EngineConnection(asyncio.Protocol):
    """A running engine process. Made by `open`; used from one event loop.

    ``ended`` resolves to the reason when the process is gone, after the last message was handed out.
    """

    def __init__(self, process: subprocess.Popen[bytes], on_event: Callable[[Event], None]) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._on_event = on_event
        self._frames = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._started: asyncio.Future[EngineInfo] = loop.create_future()
        self._patience = _EXIT_SECONDS
        self._kill_reason: str | None = None
        self._info: EngineInfo | None = None
        self._burial: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[str] = loop.create_future()

    @classmethod
    async def open(
        cls, config: EngineConfig, worker: str, on_event: Callable[[Event], None], *, deadline: float | None = None
    ) -> EngineConnection:
        """Start the process and wait until the model is loaded.

        Args:
            worker: the module that runs in the process; any that speaks `millstream.engine.messages` will do.
            on_event: gets every message after the first.
            deadline: seconds that loading may take; None: any.

        Raises:
            EngineStartError: the model cannot be loaded, the process ended or took too long.
            OSError: no process can be had.
        """
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", worker, str(theirs.fileno()), msgspec.json.encode(config).decode()]
        try:
            process = _spawn(command, theirs)
        except BaseException:
            ours.close()
            raise
        self = cls(process, on_event)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)
        try:
            async with asyncio.timeout(deadline):
                self._info = await asyncio.shield(self._started)
        except TimeoutError:
            self.kill(f"it took more than {deadline:g} s to load the model")
            raise EngineStartError(await self.wait()) from None
        except BaseException:
            self.kill("its start was given up")
            await self.close()
            raise
        return self

    @property
    def info(self) -> EngineInfo:
        assert self._info is not None
        return self._info

    @property
    def pid(self) -> int:
        """Process id of the engine process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether messages still reach the process."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, command: Command) -> None:
        """Queue a message; nothing happens once the connection is lost."""
        if self.alive:
            cast(asyncio.Transport, self._transport).write(frame(command))

    def kill(self, reason: str) -> None:
        """End the process at once, even a stopped one. ``reason`` is what ``ended`` will tell."""
        self._kill_reason = reason
        self._process.kill()

    async def close(self) -> None:
        """Let the process end by itself, or kill it if it does not; returns when it is gone."""
        self._patience = _STOP_SECONDS
        if self._transport is not None:
            self._transport.close()
        await self.wait()

    async def wait(self) -> str:
        """Wait until the process is gone; returns why."""
        return await asyncio.shield(self.ended)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for body in self._frames.feed(data):
            event = event_decoder.decode(body)
            if self._started.done():
                self._on_event(event)
            elif isinstance(event, Ready):
                self._started.set_result(event.info)
            elif isinstance(event, StartFailed):
                self._started.set_exception(EngineStartError(event.message))

    def connection_lost(self, exc: Exception | None) -> None:
        self._burial = asyncio.get_running_loop().create_task(self._bury())

    async def _bury(self) -> None:
        """Take leave of a process whose connection is gone."""
        status = await asyncio.to_thread(self._wait)
        reason = self._kill_reason or _exit_text(status)
        if not self._started.done():
            message = f"the engine process ended while it loaded the model ({reason})"
            self._started.set_exception(EngineStartError(message))
        self._started.exception()  # whoever waited for the start may have left
        self.ended.set_result(reason)

    def _wait(self) -> int | None:
        """Exit status; None if the process closed its connection and lived on until it was killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(self._patience)
        self._process.kill()
        self._process.wait()
        return None


def _exit_text(status: int | None) -> str:
    if status is None:
        return "it closed its connection"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


def _spawn(command: list[str], connection: socket.socket) -> subprocess.Popen[bytes]:
    """Start the process with its end of the socket; our copy of it is closed, so that each side sees the other's end.

    It gets a process group of its own: Ctrl-C is for the API process, which stops the engine after the last stream.
    """
    with connection:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[connection.fileno()], process_group=0)
