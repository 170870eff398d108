"""The engine process as seen from the API process: start it, send requests, hand out tokens, notice its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from itertools import count

import msgspec

from millstream.engine.config import EngineConfig
from millstream.engine.messages import (
    HEADER,
    Abort,
    Command,
    Event,
    Ready,
    StartFailed,
    StatsQuery,
    StatsReply,
    Step,
    Submit,
    event_decoder,
    frame,
)
from millstream.engine.protocol import EngineInfo, EngineStats, TokenDelta, TokenRequest
from millstream.ir.errors import ApiError, engine_failed, invalid, overloaded

_ANSWER_SECONDS = 10.0
_STOP_SECONDS = 5.0
_RETRY_AFTER_SECONDS = 2.0


class EngineStartError(Exception):
    """The engine process could not start; the message is for the person who started it."""


class EngineProcess:
    """A `TokenEngine` whose work is done by another process. Made by `start`; used from one event loop."""

    def __init__(
        self,
        config: EngineConfig,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._config = config
        self._process = process
        self._reader = reader
        self._writer = writer
        self._info: EngineInfo | None = None
        self._streams: dict[str, _Stream] = {}
        self._queries: dict[int, asyncio.Future[EngineStats]] = {}
        self._serials = count()
        self._failure: str | None = None
        self._listener: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, config: EngineConfig, *, worker: str = "millstream.engine.worker") -> EngineProcess:
        """Start the process and wait until the model is loaded.

        ``worker`` is the module that runs in the process; any that speaks `millstream.engine.messages` will do.

        Raises:
            EngineStartError: the model cannot be loaded, or the process ended.
        """
        ours, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-m",
            worker,
            str(theirs.fileno()),
            msgspec.json.encode(config).decode(),
        ]
        process = _spawn(command, theirs)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        engine = cls(config, process, reader, writer)
        try:
            await engine._wait_until_ready()
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def info(self) -> EngineInfo:
        assert self._info is not None
        return self._info

    @property
    def pid(self) -> int:
        """Process id of the engine process."""
        return self._process.pid

    async def submit(self, request: TokenRequest) -> _Stream:
        """Queue one sequence; see `TokenEngine.submit`."""
        self._require_alive()
        longest = len(request.prompt) + request.max_tokens
        if longest > self.info.kv_tokens:
            raise invalid(
                f"The request may grow to {longest} tokens, but the KV cache holds {self.info.kv_tokens}. "
                "Shorten the prompt or lower max_tokens."
            )
        if len(self._streams) >= self._config.max_sequences + self._config.max_waiting:
            raise overloaded(
                f"The queue is full: {len(self._streams)} sequences are running or waiting. Try again later.",
                retry_after=_RETRY_AFTER_SECONDS,
            )
        if request.id in self._streams:
            raise ValueError(f"request id {request.id!r} is in use")
        stream = _Stream(request.id, self._forget)
        self._streams[request.id] = stream
        self._send(Submit(request))
        return stream

    async def stats(self) -> EngineStats:
        """A round trip to the engine process.

        Raises:
            ApiError: 503; the process ended, or did not answer in time.
        """
        self._require_alive()
        serial = next(self._serials)
        future: asyncio.Future[EngineStats] = asyncio.get_running_loop().create_future()
        self._queries[serial] = future
        try:
            self._send(StatsQuery(serial))
            return await asyncio.wait_for(future, _ANSWER_SECONDS)
        except TimeoutError:
            raise engine_failed(f"The engine has not answered for {_ANSWER_SECONDS:g} s.") from None
        finally:
            self._queries.pop(serial, None)

    async def close(self) -> None:
        """Stop the process. Open streams end with an error."""
        self._fail("The engine was stopped.")
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
        self._writer.close()
        await asyncio.get_running_loop().run_in_executor(None, self._reap)

    def _reap(self) -> int:
        try:
            return self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    async def _wait_until_ready(self) -> None:
        event = await self._read()
        if isinstance(event, Ready):
            self._info = event.info
            self._listener = asyncio.create_task(self._listen())
        elif isinstance(event, StartFailed):
            raise EngineStartError(event.message)
        else:
            raise EngineStartError(f"the engine process ended while it loaded the model ({await self._exit_text()})")

    async def _read(self) -> Event | None:
        """The next message; None at end of file."""
        try:
            header = await self._reader.readexactly(HEADER.size)
            body = await self._reader.readexactly(HEADER.unpack(header)[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return event_decoder.decode(body)

    async def _listen(self) -> None:
        while (event := await self._read()) is not None:
            if isinstance(event, Step):
                for delta in event.deltas:
                    stream = self._streams.get(delta.id)
                    if stream is not None:
                        stream.push(delta)
                        if delta.finish is not None:
                            del self._streams[delta.id]
            elif isinstance(event, StatsReply):
                future = self._queries.get(event.serial)
                if future is not None and not future.done():
                    future.set_result(event.stats)
        self._fail(f"The engine process ended unexpectedly ({await self._exit_text()}).")

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        for stream in self._streams.values():
            stream.fail(engine_failed(reason))
        self._streams.clear()
        for future in self._queries.values():
            if not future.done():
                future.set_exception(engine_failed(reason))
        self._queries.clear()

    async def _exit_text(self) -> str:
        try:
            status = await asyncio.get_running_loop().run_in_executor(None, self._process.wait, 1.0)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return f"exit status {status}"

    def _require_alive(self) -> None:
        if self._failure is not None:
            raise engine_failed(self._failure)

    def _send(self, command: Command) -> None:
        self._writer.write(frame(command))

    def _forget(self, request_id: str) -> None:
        """The reader left before the end."""
        if self._streams.pop(request_id, None) is not None and self._failure is None:
            self._send(Abort(request_id))


def _spawn(command: list[str], connection: socket.socket) -> subprocess.Popen[bytes]:
    """Start the process with its end of the socket; our copy of it is closed, so that each side sees the other's end.

    It gets a process group of its own: Ctrl-C is for the API process, which stops the engine after the last stream.
    """
    with connection:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[connection.fileno()], process_group=0)


class _Stream:
    """Deltas of one sequence; fed by the listener, read by one consumer."""

    def __init__(self, request_id: str, forget: Callable[[str], None]) -> None:
        self._id = request_id
        self._forget = forget
        self._queue: asyncio.Queue[TokenDelta | ApiError] = asyncio.Queue()
        self._done = False

    def push(self, delta: TokenDelta) -> None:
        self._queue.put_nowait(delta)

    def fail(self, error: ApiError) -> None:
        self._queue.put_nowait(error)

    def __aiter__(self) -> AsyncIterator[TokenDelta]:
        return self

    async def __anext__(self) -> TokenDelta:
        if self._done:
            raise StopAsyncIteration
        item = await self._queue.get()
        if isinstance(item, ApiError):
            self._done = True
            raise item
        self._done = item.finish is not None
        return item

    async def aclose(self) -> None:
        self._done = True
        self._forget(self._id)
