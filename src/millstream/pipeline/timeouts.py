"""The end of a request whose time is up.

A choice ends as one that reached its token limit, with the tokens it has. If no choice has any, there is no answer to
be cut short, and the request fails: a client that waited in the queue must be able to tell that from an empty answer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator

from millstream.ir.deltas import Content, Delta, Error, Finish, Start
from millstream.ir.errors import ApiError
from millstream.ir.guard import error_of, guard
from millstream.ir.provider import DeltaStream
from millstream.ir.request import Service


def deadline_of(service: Service) -> float | None:
    """When a request that begins now ends at the latest, by the monotonic clock."""
    return None if service.timeout is None else time.monotonic() + service.timeout


def timed_out(before: str = "the first token of the answer") -> ApiError:
    """A 504: the request's time was up before there was something worth an answer."""
    return ApiError(
        f"The request's time was up before {before}. Raise 'timeout', or try again when there is less to do.",
        type="server_error",
        code="timeout",
        status=504,
    )


def timely(stream: DeltaStream, service: Service, *, choices: int, echo: bool = False) -> DeltaStream:
    """The stream of a request that may be ended by its deadline. ``echo``: choices begin with their prompt."""
    return stream if service.timeout is None else guard(_Timely(stream, choices, echo), choices=choices)


class _Timely:
    """Holds choices that ended empty until another says something, or until all have ended so. An echo, which is the
    first that its choice says, is held too: it is the client's own text and no answer."""

    def __init__(self, stream: DeltaStream, choices: int, echo: bool) -> None:
        self._stream = stream
        self._open = choices
        self._silent = set(range(choices)) if echo else set[int]()
        self._held: list[Delta] = []
        self._ready: deque[Delta] = deque()
        self._spoken = False

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        while not self._ready:
            delta = await self._stream.__anext__()
            if self._spoken or isinstance(delta, Start):
                return delta
            if isinstance(delta, Finish) and delta.reason == "length" and delta.usage.completion_tokens == 0:
                self._held.append(delta)
                self._open -= 1
                if not self._open:
                    return error_of(timed_out())
            elif isinstance(delta, Content) and delta.choice in self._silent:
                self._silent.remove(delta.choice)
                self._held.append(delta)
            else:
                self._spoken = not isinstance(delta, Error)
                self._ready.extend((*(self._held if self._spoken else ()), delta))
        return self._ready.popleft()

    async def aclose(self) -> None:
        await self._stream.aclose()
